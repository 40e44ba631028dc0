"""Numbers of the papers that have nothing of ours beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.harness.tables import Cell, Table, none, one
from experiments.harness.verdicts import Verdict

Lines = Sequence[tuple[str, Mapping[str, Any]]]


def not_reproduced(where: str, column: str, paper: float | None, **more: Any) -> Cell:
    """A number of a paper alone; None where it did not survive in the text."""
    return one(where, column, paper, math.nan, standing=Verdict.NOT_REPRODUCED, **more)


def missing(paper: str, name: str, title: str, lines: Callable[[], Lines], why: str) -> Table:
    """A table that is not reproduced: ``lines`` gives pairs of a row's name and its columns."""

    def cells(rows: Sequence[Mapping[str, Any]]) -> list[Cell]:
        return [
            not_reproduced(where, column, value)
            for where, columns in lines()
            for column, value in columns.items()
        ]

    return Table(paper, name, title, none, cells, why, missing=True)
