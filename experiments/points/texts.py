"""What the report says of the study of interpolation points."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.harness.tables import Cell
from experiments.harness.verdicts import AIMS, Verdict
from experiments.report.texts import Text


def _rows(cells: Sequence[Cell]) -> list[str]:
    aims = [c for c in cells if c.verdict in AIMS]
    return [
        f"{sum(c.verdict is Verdict.REACHED for c in aims)} of {len(aims)} aims of ours are "
        "reached.",
        "At α = 8 the papers' points are within a few per cent of the best. At α = 16 the best "
        "points, all dyadic, lose five times less on zero-mean data of any kind. On positive data "
        "the papers' points lose most through their constants, and how much depends on the order "
        "of operations: the factored programs of winolab lose several times less with the same "
        "points.",
        "Zero-mean data show what positive data hide: direct FP32 loses tens of times less than "
        "α = 16 with any points.",
    ]


def _layers(cells: Sequence[Cell]) -> list[str]:
    paper = [c for c in cells if c.column.startswith("paper, published order, over")]
    positive = [c.ours for c in paper if ", u12," in c.where]
    zero_mean = [c.ours for c in paper if ", u11," in c.where]
    return [
        f"On U[1,2] the gain over the papers' points falls from {positive[0]:.1f} at 64 channels "
        f"to {positive[-1]:.1f} at 512, because accumulation, which points do not touch, grows "
        f"with the channels. On zero-mean data it stays at {min(zero_mean):.1f} to "
        f"{max(zero_mean):.1f}."
    ]


TEXTS = {
    "points rows": Text(
        "The papers on α = 16 interpolate at 0, ±1, ±2, ±½, ±3, ±⅓, ±4, ±¼ and infinity.",
        "F(n, r) on rows over 64 channels, all outputs, ten seeds, for the papers' and for the "
        "best points known, in the published order of operations and in winolab's, on data that "
        "are positive (u12), zero-mean (u11, normal), after ReLU (relu) and of wide exponents "
        "(wide). Positive data are judged by the mean relative error, others by the relative RMS.",
        "ours: error over that of the best points with the same data; low and high: 90 % interval.",
        _rows,
    ),
    "points layers": Text(
        "As above.",
        "9 × 9 filters over 32 × 32 outputs with padding 4, 64 to 512 channels.",
        "ours: error over that of the best points with the same data; low and high: 90 % interval. "
        "Predictions leave padding out.",
        _layers,
    ),
}
