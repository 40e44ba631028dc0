"""Im2col-Winograd, sections 5.4 to 5.6: its kernels' variants, counted, and by a GPU's rows.

``gamma:16:8:9;variant=c64+fused`` and its kind name the CUDA kernels (winolab/gpu/families/
gamma_ffma/published.py); experiments.measure.published.im2col times them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from experiments.harness import counted
from experiments.harness.counted import Count, claim, row
from experiments.harness.facts import facts
from experiments.harness.tables import Cell, Table, none, one, select, stored
from experiments.harness.verdicts import at_least, below, equal, rounds_to
from papers.im2col_winograd_2024.accuracy import PAPER
from winolab.algorithm import parse_algorithm
from winolab.arguments.variants import BLOCKS
from winolab.gpu.families.gamma_ffma.published import Published, intensity
from winolab.ref.algorithms.im2col import masked, segments

Row = dict[str, Any]
KERNELS = (
    "gamma:8:7:2", "gamma:8:6:3", "gamma:8:5:4", "gamma:8:4:5", "gamma:8:3:6", "gamma:8:2:7",
    "gamma:16:10:7", "gamma:16:9:8", "gamma:16:8:9",
)  # fmt: skip
MEASURED = "im2col_variants"


def variants() -> list[Row]:
    """Overlaps, intensities with the filter's transform inside and before, redundant tiles."""
    known, rows = facts(PAPER)["variants"], []
    for name in KERNELS:
        (tile,) = parse_algorithm(name).tiles
        overlap = (tile.r - 1) / tile.alpha
        named = name in known["reuse"]
        wanted = at_least(known["overlap"]) if named else below(known["overlap"])
        text = f"{name}: input reuse {'pays' if named else 'does not pay'}: (r − 1) / α"
        rows.append(claim(text, known["overlap"], overlap, wanted))
        for block in BLOCKS if tile.alpha == 16 else BLOCKS[:2]:
            for fused in (True, False):
                where = "inside the block" if fused else "before, as ours"
                column = f"{block}, filter transformed {where}: operations a byte"
                printed = None
                if fused and known["intensity"]["kernel"] == name:
                    printed = known["intensity"][block]
                found = intensity(Published(block, fused, False).shape(tile.alpha), tile)
                accepted = printed and [*rounds_to(printed, 0.01)]
                rows.append(row(name, column, found, printed, accepted=accepted))
    rows += list(_edges(known["redundant"]))
    return rows


def _edges(example: Row) -> Iterator[Row]:
    """Outputs that masked tiles compute in vain, and segments', which compute none."""
    (tile,) = parse_algorithm(example["kernel"]).tiles
    width, share = example["width"], float(Fraction(example["share"]))
    (mask,) = masked(width, tile)
    last = 1 - (width - (mask.tiles - 1) * tile.n) / tile.n
    text = f"{example['kernel']}, a width of {width}: share of the second tile in vain"
    yield claim(text, share, last, equal(share))
    cut = segments(width, tile)
    column = f"kernels of a width of {width}, none of whose outputs is computed in vain"
    note = " and ".join(f"{s.outputs} by Γ{s.tile.alpha}({s.tile.n},{s.tile.r})" for s in cut)
    yield row(example["kernel"], column, len(cut), note=note)


def cells_kernels(rows: Sequence[Row]) -> list[Cell]:
    """Each policy on over off on a GPU, by kernel: geometric means, least and most over layers."""
    found: list[Cell] = []
    for kernel in dict.fromkeys(r["kernel_of"] for r in rows):
        mine = select(rows, kernel_of=kernel)
        for text, off, on in (
            ("input reuse", "base", "ruse"),
            ("c64", "base", "c64"),
            ("filter inside the block, base", "base", "base+fused"),
            ("filter inside the block, c64", "c64", "c64+fused"),
            ("input reuse, filter inside", "base+fused", "ruse+fused"),
            ("segments for masked tiles", "base", "base+segments"),
            ("our kernel of the tile over base", "base", "picked"),
        ):
            ratios = list(_ratios(mine, off, on))
            if ratios:
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                note = f"{len(ratios)} layers, {min(ratios):.2f} to {max(ratios):.2f}"
                found.append(one(kernel, text, None, mean, note=note))
    return found


def _ratios(rows: Sequence[Row], off: str, on: str) -> Iterator[float]:
    for layer in dict.fromkeys((r["input"], r["filter"]) for r in rows):
        took = {r["kind"]: r["cold_us"][1] for r in select(rows, input=layer[0], filter=layer[1])}
        if off in took and on in took:
            yield took[off] / took[on]


def _jobs(full: bool) -> list[Count]:
    return [Count(PAPER, "variants", variants)]


VARIANTS = Table(
    PAPER,
    "variants",
    "Variants of the kernels: overlap, intensity and edges",
    _jobs,
    partial(counted.cells, unit=0.01),
    "intensities round to the printed ones; input reuse pays by the paper's rule where it says so",
)
ON_A_GPU = Table(
    PAPER,
    "variants_kernels",
    "Speedup by each variant on a GPU",
    none,
    cells_kernels,
    "nothing is judged: another device",
    sources=(MEASURED,),
    values=("cold_us",),
)
TABLES = (VARIANTS, *([ON_A_GPU] if stored(MEASURED) else []))
