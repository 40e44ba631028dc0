"""Im2col-Winograd 2024, Tables 4 and 5 and Figures 11 and 12: training, not reproduced."""

from __future__ import annotations

from functools import partial

from experiments.harness.facts import table
from experiments.harness.missing import Lines, missing

PAPER = "im2col_winograd_2024"
WHY = "no training yet"
COLUMNS = {
    "alpha": "Alpha, seconds an epoch",
    "pytorch": "PyTorch, seconds an epoch",
    "acceleration": "acceleration",
}


def _lines(number: int) -> Lines:
    return [
        (f"{row['network']}, {row['training']}", {name: row[key] for key, name in COLUMNS.items()})
        for row in table(PAPER, number)["rows"]
    ]


def _curves() -> Lines:
    return [("the figure", {"loss curves": None})]


TABLES = (
    missing(PAPER, "table4", "Training on ILSVRC2012", partial(_lines, 4), WHY),
    missing(PAPER, "table5", "Training on Cifar10", partial(_lines, 5), WHY),
    missing(PAPER, "figure11", "Loss curves on ILSVRC2012", _curves, WHY),
    missing(PAPER, "figure12", "Loss curves on Cifar10", _curves, WHY),
)
