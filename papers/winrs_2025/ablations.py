"""WinRS's section 5.2: what its optimizations are worth, counted, and from rows that a GPU left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from experiments.harness import counted
from experiments.harness.counted import Count, claim, row
from experiments.harness.tables import Cell, Table, none, one, select
from experiments.harness.verdicts import Verdict
from papers.winrs_2025.grid import PAPER
from papers.winrs_2025.timing import FP16_OVER_FP32
from winolab.ref.algebra.program import Program
from winolab.ref.algebra.transforms import transforms
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winrs.kernels import TILES, Kernel

Row = dict[str, Any]
PADDING = 1.46  # section 5.2: padding of ldmatrix's rows, FP16
HALF = (0.5, 0.625)  # "nearly halves the required multiplications": nearer to 1/2 than to 3/4


def simplified() -> list[Row]:
    """Multiplications of each kernel's transforms, paired, over those of its matrices."""
    rows = []
    for tile in (t for t in TILES["fp32"] if t != DIRECT and t.alpha > 4):
        found = transforms(tile.n, tile.r, "paper")
        its: list[tuple[Any, Program]] = [
            (found.G, found.programs.G),
            (found.BT, found.programs.BT),
            (found.AT, found.programs.AT),
        ]
        plain = sum(v not in (0, 1, -1) for m, _ in its for line in m for v in line)
        paired = sum(p.counts.multiplications + p.counts.fmas for _, p in its)
        note = f"{paired} of {plain}"
        text = f"{Kernel(tile)}: pairs of points ±p nearly halve the multiplications"
        rows.append(claim(text, 0.5, paired / plain, HALF, note))
    four = [t for t in TILES["fp32"] if t.alpha == 4]
    rows += [row(str(Kernel(t)), "nothing to pair but ±1", 1.0) for t in four]
    return rows


def cells_kernels(rows: Sequence[Row]) -> list[Cell]:
    """Each policy of fused Ω in FP16, on over off, by kernel: geometric means over layers."""
    found: list[Cell] = []
    fused = select(rows, kind="fused")
    for kernel in dict.fromkeys(r["kernel"] for r in fused):
        mine = select(fused, kernel=kernel)
        for text, off, on, paper in (
            ("rows padded by 128 bits", " pad=0", "", PADDING),
            ("transforms of half2", "", " half2=1", None),
            ("sums in FP16, and blocks as large", "", " sums=16", None),
        ):
            found += _ratio(kernel, text, paper, list(_pairs(mine, off, on)))
    found += _ratio("all", "FP16 over FP32", FP16_OVER_FP32, list(_beside(rows)))
    return found


def _pairs(rows: Sequence[Row], off: str, on: str) -> Iterator[float]:
    """Times without a policy over those with it; sums in FP16 have block shapes of their own."""
    by_layer: dict[tuple[str, str], dict[str, float]] = {}
    for r in rows:
        layer = r["input"], r["filter"]
        by_layer.setdefault(layer, {})[r["plan"]] = r["cold_us"][1]
    for plans in by_layer.values():
        for plan, took in plans.items():
            if on == " sums=16":
                plain = [t for p, t in plans.items() if _usual(p)]
                if plan.endswith(on) and plain:
                    yield min(plain) / took
            elif off and plan.endswith(off):
                yield took / plans.get(plan.removesuffix(off), math.nan)
            elif on and plan.endswith(on) and "sums" not in plan:
                yield plans.get(plan.removesuffix(on), math.nan) / took


def _beside(rows: Sequence[Row]) -> Iterator[float]:
    """FP32's time over the same kernel's in FP16 with its usual policies, a layer each."""
    for other in select(rows, kind="fused in FP32"):
        same = select(rows, kind="fused", kernel=other["kernel"], filter=other["filter"],
                      input=other["input"])  # fmt: skip
        if took := [r["cold_us"][1] for r in same if _usual(r["plan"])]:
            yield other["cold_us"][1] / min(took)


def _usual(plan: str) -> bool:
    return not any(name in plan for name in ("pad=", "half2=", "sums="))


def _ratio(where: str, text: str, paper: float | None, ratios: Sequence[float]) -> Iterator[Cell]:
    known = [r for r in ratios if not math.isnan(r)]
    if known:
        mean = math.exp(sum(map(math.log, known)) / len(known))
        note = f"{len(known)} layers, {min(known):.2f} to {max(known):.2f}"
        if paper:
            yield one(where, text, paper, mean, standing=Verdict.NOT_COMPARABLE,
                      note=f"{note}; another device")  # fmt: skip
        else:
            yield one(where, text, None, mean, note=note)


def _jobs(full: bool) -> list[Count]:
    return [Count(PAPER, "simplification", simplified)]


SIMPLIFICATION = Table(
    PAPER,
    "simplification",
    "Multiplications that pairs of points ±p save",
    _jobs,
    partial(counted.cells, unit=0),
    "the paper's words hold: nearer to half the matrices' multiplications than to three quarters",
)
KERNELS = Table(
    PAPER,
    "ablations_kernels",
    "What each policy of fused Ω in FP16 is worth on a GPU",
    none,
    cells_kernels,
    "nothing is judged: another device",
    sources=("fused_omega",),
    values=("cold_us",),
)
TABLES = (SIMPLIFICATION, KERNELS)
