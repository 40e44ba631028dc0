"""What may be said of a cell: it is judged, or there is a reason why it is not."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What a cell counts as; every cell of a table is exactly one of these."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    FITTED = "fitted"  # a constant was fitted on it
    NOT_COMPARABLE = "not comparable"  # another device, or not the paper's algorithm
    NOT_REPRODUCED = "not reproduced"  # the paper's number alone
    SHOWN = "shown"  # no number of the paper's, or a second one of ours beside it
    REACHED = "aim reached"  # an aim of our own, which no paper has
    MISSED = "aim missed"


JUDGED = (Verdict.AGREES, Verdict.DISAGREES)
AIMS = (Verdict.REACHED, Verdict.MISSED)
