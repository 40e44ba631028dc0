"""WinRS 2025, what is counted: Figures 2, 5, 6 and 7."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from experiments.harness import counted
from experiments.harness.counted import Count, claim, row
from experiments.harness.facts import facts
from experiments.harness.jobs import Row
from experiments.harness.tables import Table
from experiments.harness.verdicts import SLACK, Verdict, at_least, equal, rounds_to
from papers.winrs_2025.grid import PAPER, Layer
from winolab.algorithm import Problem, Tile
from winolab.ref.algebra.program import Program
from winolab.ref.algebra.transforms import transforms
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winrs.gradient import clipped_share
from winolab.ref.algorithms.winrs.kernels import TILES, Kernel, kernels
from winolab.ref.algorithms.winrs.plan import plan, segment_blocks
from winolab.ref.algorithms.winrs.segments import Segment

DEVICE = "rtx4090"
VGG16_2 = Layer(32, 224, 64, 3)
WIDTHS = (7, 14, 16, 28, 56, 112)


def blocks_2d(layer: Layer, outputs: int, n: int, block: tuple[int, int]) -> int:
    """Blocks of a fused F(n×n, …) whose tiles cover ``outputs``², of BN × BM channels × tiles."""
    bn, bm = block
    images = layer.batch if outputs == layer.output else layer.channels
    return -(-layer.channels // bn) * -(-images * math.ceil(outputs / n) ** 2 // bm)


def figure2() -> list[Row]:
    problem = VGG16_2.problem
    where = "VGG16, second layer"
    made = plan(problem, DEVICE)
    return [
        row(where, "forward, F(2×2,3×3)", blocks_2d(VGG16_2, 224, 2, (64, 32)), 12544),
        row(where, "backward filter, F(2×2,3×3)", blocks_2d(VGG16_2, 3, 2, (64, 32)), 8),
        row(where, "Ω8(3,6), one segment", segment_blocks(problem, Kernel(Tile(3, 6)))),
        row(where, f"planned, {len(made.segments)} segments", made.blocks),
        claim("planned blocks fill 128 multiprocessors", 128, made.blocks, at_least(128)),
    ]


def figure5() -> list[Row]:
    """The fastest pair by width of dw and of dy; the paper's one example is a claim."""
    rows = []
    for taps in range(2, 10):
        for width in WIDTHS:
            made = plan(Layer(32, width, 128, taps).problem, DEVICE, points="paper",
                        admissible=False).pair  # fmt: skip
            note = f"{made.units} × {made.first}"
            if made.second is not None:
                note += f" + {made.rest} × {made.second}"
            share = made.units * made.first.tile.r / width
            rows.append(
                row(f"F_W = {taps}, O_W = {width}", "share of the first kernel", share, note=note)
            )
    made = plan(Layer(32, 16, 128, 3).problem, DEVICE).pair
    chosen = [str(k) for k in made.kernels]
    holds = chosen == ["Ω8(3,6)", "Ω4(3,2)"]
    rows.append(
        claim("F_W = 3, O_W = 16: Ω8(3,6) and Ω4(3,2)", 1, holds, equal(1), " and ".join(chosen))
    )
    return rows


def figure6() -> list[Row]:
    rows = []
    printed = facts(PAPER)["kernels"]
    for precision in ("fp32", "fp16"):
        ours = {(t.n, t.r) for t in TILES[precision]} - {(1, 1)}
        theirs = {tuple(t) for t in printed[precision]} - {(1, 1)}
        # The planner's list is the figure's, typed in: it could not differ.
        rows.append(
            row("kernels", precision, len(ours & theirs), len(theirs),
                standing=Verdict.NOT_COMPARABLE, note="the list was taken from the figure")
        )  # fmt: skip
    widths = {w for w in range(1, 32) if len(kernels(w, "fp32", "paper", False)) > 1}
    multiples = {w for w in range(1, 32) if any(w % k == 0 for k in range(2, 10))}
    rows.append(claim("multiples of 2 to 9 up to 31 that are served, and no other width",
                      len(multiples), len(multiples) - len(widths ^ multiples),
                      equal(len(multiples))))  # fmt: skip
    return rows


def figure7() -> list[Row]:
    """The work that clipping saves, counted, beside the formula and the figure's percentage."""
    rows = []
    for taps, size, pad in ((3, 4, 1), (3, 16, 1), (5, 8, 2), (7, 14, 3), (9, 16, 4)):
        problem = Problem.of((1, size, size, 1), (1, taps, 3, 1), padding=((pad, pad), (1, 1)))
        tile = Tile(3, 2)
        segment = Segment(Kernel(tile), (0, 0), (problem.output[0], size))
        formula = pad * (pad + 1) / (taps * problem.output[0])
        saved = clipped_share(problem, (segment,))
        where = f"{taps}×3 taps, {size}×{size} inputs, padding {pad}"
        rows.append(row(where, "saved, by the formula p(p+1)/(F·O)", saved, formula))
    (first, *_) = rows
    rows.append(
        claim(
            "a 6×6 area clipped to 4×6 saves 12.5 %", 0.125, first["ours"], rounds_to(0.125, 1e-3),
            "F·O = 16 is needed; an area of 6 has O = 7 − F, F·O = 10 or 12",
        )
    )  # fmt: skip
    return rows


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


def _table(name: str, title: str, function, tolerance: str, unit: float = 0) -> Table:
    return Table(
        PAPER,
        name,
        title,
        partial(_jobs, name, function),
        partial(counted.cells, unit=unit),
        tolerance,
    )


def _jobs(name: str, function, full: bool) -> list[Count]:
    return [Count(PAPER, name, function)]


FIGURE2 = _table("figure2", "Blocks of VGG16's second layer", figure2, "equal", unit=1)
FIGURE5 = _table("figure5", "The fastest kernel pairs", figure5, "the text's example holds")
FIGURE6 = _table("figure6", "The kernels", figure6, "the same widths")
FIGURE7 = _table("figure7", "Clipping the padding", figure7, "equal", unit=2 * SLACK)
SIMPLIFICATION = _table(
    "simplification",
    "Multiplications that pairs of points ±p save",
    simplified,
    "the paper's words hold: nearer to half the matrices' multiplications than to three quarters",
)
