"""Tables that are counted rather than measured: a job is a function that returns rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, one
from experiments.harness.verdicts import Range, Verdict, rounds_to


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


def claim(text: str, paper: float, ours: float, accepted: Range, note: str = "") -> Row:
    """A claim of a paper's prose, its number, what comes out here, and where that would hold."""
    ends = [None if math.isinf(end) else end for end in accepted]
    return row("claim", text, ours, paper, accepted=ends, claim=True, note=note)


def cells(rows: Sequence[Row], unit: float) -> list[Cell]:
    """A cell a row: a printed number, whose last digit counts ``unit``, agrees if ours rounds to
    it; a row's own ``accepted`` replaces that, its ``standing`` the verdict.
    """
    found = []
    for r in rows:
        printed, accepted = r["printed"], None
        if r.get("accepted"):
            low, high = r["accepted"]
            accepted = -math.inf if low is None else low, math.inf if high is None else high
        elif printed is not None:
            accepted = rounds_to(printed, unit)
        standing = Verdict(r["standing"]) if r.get("standing") else None
        found.append(
            one(r["where"], r["column"], printed, r["ours"], accepted=accepted, standing=standing,
                claim=r.get("claim", False), note=r.get("note", ""))
        )  # fmt: skip
    return found
