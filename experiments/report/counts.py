"""Counts of cells by their verdicts: what is judged, agrees, and is not judged, and why.

>>> counts([]).text
'nothing judged'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from experiments.harness.tables import Cell
from experiments.harness.verdicts import Verdict

# What is not judged, in the order of its counts.
UNJUDGED = (Verdict.FITTED, Verdict.NOT_COMPARABLE, Verdict.NOT_REPRODUCED, Verdict.OPEN)


@dataclass(frozen=True)
class Counts:
    """How many cells are what. Numbers and claims of prose are counted apart."""

    judged: int = 0  # numbers
    agreeing: int = 0
    claims: int = 0  # claims that are judged
    holding: int = 0
    fitted: int = 0
    not_comparable: int = 0
    not_reproduced: int = 0
    open: int = 0  # claims that too few cases were measured for

    @property
    def text(self) -> str:
        """ "31 of 35 numbers agree, 4 of 5 claims hold; 3 fitted, 1 not comparable"."""
        said = [
            f"{yes} of {of} {what}"
            for yes, of, what in (
                (self.agreeing, self.judged, "numbers agree"),
                (self.holding, self.claims, "claims hold"),
            )
            if of
        ]
        rest = [
            f"{count} {what}"
            for count, what in (
                (self.fitted, "fitted"),
                (self.not_comparable, "not comparable"),
                (self.not_reproduced, "not reproduced"),
                (self.open, "open"),
            )
            if count
        ]
        return "; ".join(filter(None, (", ".join(said) or "nothing judged", ", ".join(rest))))


def counts(cells: Iterable[Cell]) -> Counts:
    """The counts of some cells."""
    found = Counter((cell.verdict, cell.claim) for cell in cells)
    agree, differ = Verdict.AGREES, Verdict.DISAGREES
    return Counts(
        judged=found[agree, False] + found[differ, False],
        agreeing=found[agree, False],
        claims=found[agree, True] + found[differ, True],
        holding=found[agree, True],
        **{
            verdict.replace(" ", "_"): found[verdict, False] + found[verdict, True]
            for verdict in UNJUDGED
        },
    )
