"""What the report says of openCNN's tables."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.harness.tables import Cell
from experiments.report.counts import counts
from experiments.report.texts import Text
from papers.opencnn_2021.tables import EQUATION3


def _equation3(cells: Sequence[Cell]) -> list[str]:
    failed = [f"{c.column}, {c.ours:.0f} where {c.paper:.0f} is printed"
              for c in cells if c.agrees is False]  # fmt: skip
    return [f"{counts(cells).text}. Not: {'; '.join(failed)}."]


TEXTS = {
    EQUATION3.key: Text(
        "Castro et al. print the matrices of F(2, 3) and count its operations: a third fewer "
        "multiplications than direct convolution's.",
        "Operations of winolab's programs; the printed matrices, proved to be convolution, beside "
        "those of the points 0, ±1 and infinity.",
        "Exact.",
        _equation3,
    ),
}
