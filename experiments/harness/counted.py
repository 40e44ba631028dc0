"""Tables that are counted rather than measured: a job is a function that returns rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell


@dataclass(frozen=True)
class Count:
    """A function of no arguments, at the top of a module, whose rows get these labels."""

    paper: str
    table: str
    function: Callable[[], list[Row]]

    @property
    def cost(self) -> float:
        """Next to nothing."""
        return 1.0

    def run(self) -> list[Row]:
        return [{"paper": self.paper, "table": self.table, **row} for row in self.function()]


def row(where: str, column: str, ours: float, paper: float | None = None, **more: Any) -> Row:
    """One number of ours, the paper's beside it where it has one."""
    return {"where": where, "column": column, "ours": float(ours), "printed": paper, **more}


def claim(text: str, paper: float, ours: float, holds: bool, note: str = "") -> Row:
    """A claim of a paper's prose, what comes out here, and whether it holds."""
    return row("claim", text, ours, paper, holds=bool(holds), note=note)


def cells(rows: Sequence[Row], tolerance: float) -> list[Cell]:
    """A cell a row; a printed number agrees within ``tolerance``, a claim if it holds."""
    found = []
    for r in rows:
        ours, printed = r["ours"], r["printed"]
        agrees = r.get("holds")
        if agrees is None and printed is not None:
            agrees = abs(ours - printed) <= r.get("tolerance", tolerance)
        found.append(
            Cell(r["where"], r["column"], printed, ours, ours, ours, agrees, note=r.get("note", ""))
        )
    return found
