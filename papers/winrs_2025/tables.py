"""The tables and figures of WinRS that are computed anew."""

from __future__ import annotations

from experiments.harness.missing import Lines, missing
from papers.winrs_2025 import counts, errors, grid, kernels, plans, timing

COMMANDS = {"fused_omega": "python -m experiments.measure.published.omega"}


def _training() -> Lines:
    return [
        ("claim", {"accuracy within 0.6 % of PyTorch's, FP32": 0.6}),
        ("the figure", {"training loss on ImageNet-1K": None}),
    ]


TABLES = (
    grid.TABLE2,
    timing.TABLE3,
    errors.TABLE4,
    counts.FIGURE2,
    counts.FIGURE5,
    counts.FIGURE6,
    counts.FIGURE7,
    counts.SIMPLIFICATION,
    grid.FIGURE9,
    errors.FIGURE12,
    errors.ZERO_MEAN,
    timing.FRONTIER_TABLE,
    *kernels.TABLES,
    *plans.TABLES,
    missing(grid.PAPER, "figure13", "CNN training", _training, "no training yet"),
)
