"""What may be said of a cell: it is judged, or there is a reason why it is not."""

from __future__ import annotations

import math
from enum import StrEnum

Range = tuple[float, float]


class Verdict(StrEnum):
    """What a cell counts as; every cell of a table is exactly one of these."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    FITTED = "fitted"
    NOT_COMPARABLE = "not comparable"
    NOT_REPRODUCED = "not reproduced"
    OPEN = "open"
    SHOWN = "shown"  # no number of the paper's, or a second one of ours beside it: nothing is said
    REACHED = "aim reached"
    MISSED = "aim missed"


# What documents and the report say of the words.
APART = (
    "A number is judged where it could have disagreed: what was fitted on, another device's and "
    "what is not computed are counted apart."
)
MEANINGS = {
    Verdict.AGREES: "ours is within what the table's rule allows, or a claim of the prose holds",
    Verdict.DISAGREES: "it is not, or the claim does not hold",
    Verdict.FITTED: "a constant of ours was fitted on the number",
    Verdict.NOT_COMPARABLE: "the paper's is of another device, or ours of another algorithm",
    Verdict.NOT_REPRODUCED: "the paper's number stands alone: nothing here computes it",
    Verdict.OPEN: "too few cases were measured to decide it; the note says what is missing",
    Verdict.REACHED: "an aim of our own, which no paper has, is met",
    Verdict.MISSED: "such an aim is not met",
}

JUDGED = (Verdict.AGREES, Verdict.DISAGREES)
AIMS = (Verdict.REACHED, Verdict.MISSED)


def near(value: float, tolerance: float) -> Range:
    """Within a share of a value."""
    half = tolerance * abs(value)
    return value - half, value + half


def within_factor(value: float, factor: float) -> Range:
    """At most so many times larger or smaller than a positive value."""
    return value / factor, value * factor


def rounds_to(value: float, unit: float) -> Range:
    """What is printed as this value, whose last digit counts ``unit``."""
    half = unit / 2 * (1 + SLACK)
    return value - half, value + half


def equal(value: float) -> Range:
    """The value itself, but for the rounding of floating point."""
    return rounds_to(value, 2 * SLACK * max(1.0, abs(value)))


def at_least(value: float) -> Range:
    """The value or more."""
    return value, math.inf


def at_most(value: float) -> Range:
    """The value or less."""
    return -math.inf, value


def above(value: float) -> Range:
    """More than the value."""
    return math.nextafter(value, math.inf), math.inf


def below(value: float) -> Range:
    """Less than the value."""
    return -math.inf, math.nextafter(value, -math.inf)


SLACK = 1e-9  # of floating point, in sums of a few thousand terms
