"""Interpolation points: named sets and the caller's own; all exact, infinity included."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from importlib import resources
from itertools import count, islice
from numbers import Rational

INFINITY = math.inf

# A finite rational, or INFINITY.
Point = Fraction | float

# Named sets: the finite points in order; infinity completes each of them.
#   paper   0, ±1, ±2, ±1/2, ±3, ±1/3, … (Im2col-Winograd, section 5.3; WinRS, section 5)
#   wincnn  0, ±1, ±2, ±1/2 as in wincnn's examples, continued by powers of two: ±4, ±1/4, …
#   best    the best known for each alpha, found by winolab.best_points (data/best_points.json)
NAMES = ("best", "paper", "wincnn")


def named_points(name: str, alpha: int) -> tuple[Point, ...]:
    """The ``alpha`` points of the set ``name``, infinity last."""
    if name == "best":
        finite = [Fraction(p) for p in best_table()[str(alpha)]["points"]]
    elif name in ("paper", "wincnn"):
        finite = list(islice(_mirrored(1 if name == "paper" else 0), alpha - 1))
    else:
        raise ValueError(
            f"unknown points {name!r}; expected one of {', '.join(NAMES)}, "
            'or a list such as "0,1,-1,2,inf"'
        )
    return (*finite, INFINITY)


@cache
def best_table() -> dict:
    """What the searches found: alpha -> points, scores, how they were found."""
    text = resources.files("winolab.ref").joinpath("data/best_points.json").read_text()
    return json.loads(text)


def _mirrored(step: int) -> Iterator[Fraction]:
    """0, ±1, then ±q, ±1/q for q = 2, then q + 1 (step 1) or 2q (step 0)."""
    yield Fraction(0)
    yield from (Fraction(1), Fraction(-1))
    for i in count(0):
        q = Fraction(2 + i) if step else Fraction(2) ** (i + 1)
        yield from (q, -q, 1 / q, -1 / q)


def as_points(points: str | Sequence | None, alpha: int) -> tuple[Point, ...]:
    """``alpha`` distinct exact points from a name, a text "0,1,-1/2,inf" or a sequence.

    Raises ValueError where their number is not ``alpha`` or one is repeated, TypeError where one
    is not an exact number (a float other than infinity).
    """
    if points is None:
        points = "best"
    if isinstance(points, str):
        if "," not in points and not points.strip().lstrip("-").isdigit():
            return named_points(points, alpha)
        points = points.split(",")
    exact = tuple(_as_point(p) for p in points)
    seen = set()
    for p in exact:
        if p in seen:
            raise ValueError(f"point {p} is repeated; interpolation points must be distinct")
        seen.add(p)
    if len(exact) != alpha:
        hint = " (infinity counts as one)" if INFINITY not in seen else ""
        raise ValueError(f"{len(exact)} points given; expected alpha = n + r - 1 = {alpha}{hint}")
    return exact


def _as_point(value: object) -> Point:
    if isinstance(value, Rational):
        return Fraction(value)
    if isinstance(value, str):
        text = value.strip()
        if text in ("inf", "infinity", "oo", "∞"):
            return INFINITY
        try:
            return Fraction(text)
        except (ValueError, ZeroDivisionError):
            raise ValueError(f'point {text!r} is not a rational number such as "-1/2"') from None
    if value == INFINITY:
        return INFINITY
    raise TypeError(
        f"point {value!r} is not an exact number; give an int, a Fraction, "
        'a text such as "-1/2", or infinity'
    )


def show(point: Point) -> str:
    """The text of a point, as :func:`as_points` reads it."""
    return "inf" if point == INFINITY else str(point)
