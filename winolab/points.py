"""Interpolation points as a caller gives them: the name of a set, or exact points one by one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fractions import Fraction
from numbers import Rational
from typing import Any

INFINITY = math.inf

# A finite rational, or INFINITY.
Point = Fraction | float

# Sets that have points for every alpha (winolab.ref.algebra.points.named_points).
NAMES = ("best", "paper", "wincnn")
DIGITS = 20  # of a point's numerator and of its denominator, at most
_INFINITE = ("inf", "infinity", "oo", "∞")
_EXPONENT = re.compile(r"[eE][+-]?(\d+)$")


def parse_points(points: Any) -> str | tuple[Point, ...]:
    """The name of a set, or distinct exact points: None is "best".

    A list is a text such as "0,1,-1/2,inf" or any iterable of exact numbers, NumPy's integers
    included. Raises ValueError for unknown names, repeated points and points of more than DIGITS
    digits; TypeError for what is not exact, such as a float other than infinity.

    >>> parse_points("0, 1/2, oo")
    (Fraction(0, 1), Fraction(1, 2), inf)
    """
    if points is None:
        return "best"
    if isinstance(points, str):
        name = points.strip()
        if name in NAMES:
            return name
        points = points.split(",")
        if len(points) == 1 and not _is_number(name):
            raise ValueError(
                f"unknown points {shortened(name)!r}; expected one of {', '.join(NAMES)}, "
                'or a list such as "0,1,-1,2,inf"'
            )
    if isinstance(points, (bytes, bytearray)) or not isinstance(points, Iterable):
        raise TypeError(
            f"points of type {type(points).__name__}; expected one of {', '.join(NAMES)}, a text "
            'such as "0,1,-1,2,inf", or a sequence of exact numbers'
        )
    listed = tuple(map(_as_point, points))
    if not listed:
        raise ValueError("no points given; expected a name or as many points as a tile has states")
    seen: set[Point] = set()
    for p in listed:
        if p in seen:
            raise ValueError(f"point {show(p)} is repeated; interpolation points must be distinct")
        seen.add(p)
    return listed


def text_of(points: Any) -> str:
    """The one text of these points, as :func:`parse_points` reads it.

    >>> text_of([0, Fraction(2, 4), "oo"])
    '0,1/2,inf'
    """
    parsed = parse_points(points)
    return parsed if isinstance(parsed, str) else ",".join(map(show, parsed))


def count_of(points: str) -> int | None:
    """How many points a list has; None of the name of a set, which has any number."""
    return None if points in NAMES else points.count(",") + 1


def served(points: str, alphas: Iterable[int]) -> bool:
    """Whether the points are a set's, or a list of as many points as one of ``alphas``."""
    count = count_of(points)
    return count is None or count in alphas


def points_for(points: str, *alphas: int) -> str:
    """``points``; "best" where they are a list of another number than each of ``alphas``, states
    of tiles."""
    return points if served(points, alphas) else "best"


def check_served(points: str, alphas: Iterable[int], what: str) -> None:
    """Raise ValueError unless the points serve a tile of one of ``alphas``, the states that
    ``what`` has."""
    alphas = sorted(set(alphas))
    if not served(points, alphas):
        known = " or ".join(map(str, alphas))
        hint = "" if "inf" in points.split(",") else " (infinity counts as one)"
        raise ValueError(
            f"{count_of(points)} points given; expected alpha = n + r - 1 = {known}{hint}, as many "
            f"as {what} has states"
        )


def show(point: Point) -> str:
    """The text of a point."""
    return "inf" if point == INFINITY else str(point)


def exact(value: Any) -> Fraction | None:
    """The rational number that ``value`` is, in Python's own integers; None where it is none.

    NumPy's integers are Rational, and a Fraction made of them holds them: they wrap.
    """
    if not isinstance(value, Rational):
        return None
    return Fraction(int(value.numerator), int(value.denominator))


def _as_point(value: Any) -> Point:
    if isinstance(value, str):
        return _of_text(value.strip())
    point = exact(value)
    if point is not None:
        return _bounded(point)
    if _is_infinity(value):
        return INFINITY
    raise TypeError(
        f"point {value!r} is not an exact number; give an int, a Fraction, "
        'a text such as "-1/2", or infinity'
    )


def _is_infinity(value: Any) -> bool:
    """Whether it is any library's infinity; arrays, which compare by element, are no points."""
    try:
        return bool(value == INFINITY)
    except (TypeError, ValueError):
        return False


def _is_number(text: str) -> bool:
    return text in _INFINITE or text[:1].isdigit() or text[:1] in ("-", "+", ".")


def _of_text(text: str) -> Point:
    if text in _INFINITE:
        return INFINITY
    if len(text) > 2 * DIGITS + 8:
        raise _too_long()
    exponent = _EXPONENT.search(text)
    if exponent and int(exponent[1]) > 2 * DIGITS:
        raise _too_long()
    try:
        return _bounded(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f'point {shortened(text)!r} is not a rational number such as "-1/2"'
        ) from None


def _bounded(point: Fraction) -> Fraction:
    if max(abs(point.numerator), point.denominator) >= 10**DIGITS:
        raise _too_long()
    return point


def _too_long() -> ValueError:
    return ValueError(
        f"a point has more than {DIGITS} digits; expected at most {DIGITS} in its numerator and in "
        "its denominator"
    )


def shortened(text: str) -> str:
    """A text for a message of one line."""
    return text if len(text) <= 80 else text[:80] + "…"
