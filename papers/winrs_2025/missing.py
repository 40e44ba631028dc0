"""WinRS 2025: training, which is not reproduced."""

from __future__ import annotations

from experiments.harness.missing import Lines, missing

PAPER = "winrs_2025"


def _training() -> Lines:
    return [
        ("claim", {"accuracy within 0.6 % of PyTorch's, FP32": 0.6}),
        ("the figure", {"training loss on ImageNet-1K": None}),
    ]


FIGURE13 = missing(PAPER, "figure13", "CNN training", _training, "no training yet")
TABLES = (FIGURE13,)
