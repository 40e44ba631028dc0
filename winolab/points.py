"""A modulus as a caller gives it: the name of a set of points, or factors one by one.

Most are interpolation points, so many speak of points; winolab.factors has the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from winolab.factors import (
    DIGITS,
    INFINITY,
    Factor,
    Point,
    as_factor,
    base_of,
    degree_of,
    distinct,
    exact,
    is_factor,
    shortened,
    show,
    split,
    states_of,
)
from winolab.problem import Tile

__all__ = [
    "DIGITS", "INFINITY", "NAMES", "Factor", "Point", "check_served", "exact", "parse_points",
    "points_for", "served", "shortened", "show", "text_of", "tile_of",
]  # fmt: skip

Modulus = tuple[Point | Factor, ...]

# Sets that have points for every alpha (winolab.ref.algebra.points.named_points).
NAMES = ("best", "paper", "wincnn")


def parse_points(points: Any) -> str | Modulus:
    """The name of a set, or distinct exact factors, most of them points: None is "best".

    A list is a text such as "0,1,-1/2,inf,x^2+1" or any iterable of exact numbers, NumPy's integers
    included, and texts. A polynomial is irreducible over the rationals, or the power of one,
    "(x-1/2)^2"; "i" and "1/2+i" are complex points, each with its conjugate. Behind it in brackets
    stands the product of its residue ring: "x^2+1[0:1:inf]", "[karatsuba]", "[direct]"; by default
    as few products as there can be.

    Raises ValueError for unknown names, repeated points, reducible polynomials and numbers of more
    than DIGITS digits; TypeError for what is not exact, such as a float other than infinity.

    >>> parse_points("0, 1/2, oo")
    (Fraction(0, 1), Fraction(1, 2), inf)
    """
    if points is None:
        return "best"
    if isinstance(points, str):
        name = points.strip()
        if name in NAMES:
            return name
        points = split(points, ",")
        if len(points) == 1 and not is_factor(name):
            raise ValueError(
                f"unknown points {shortened(name)!r}; expected one of {', '.join(NAMES)}, "
                'or a list such as "0,1,-1,2,inf"'
            )
    if isinstance(points, (bytes, bytearray)) or not isinstance(points, Iterable):
        raise TypeError(
            f"points of type {type(points).__name__}; expected one of {', '.join(NAMES)}, a text "
            'such as "0,1,-1,2,inf", or a sequence of exact numbers'
        )
    listed = tuple(map(as_factor, points))
    if not listed:
        raise ValueError("no points given; expected a name or as many points as a tile has inputs")
    distinct(listed)
    return listed


def text_of(points: Any) -> str:
    """The one text of these points, as :func:`parse_points` reads it.

    >>> text_of([0, "2/4", "oo", "x**2 + 1"])
    '0,1/2,inf,x^2+1'
    """
    parsed = parse_points(points)
    return parsed if isinstance(parsed, str) else ",".join(map(show, parsed))


@lru_cache(maxsize=4096)
def size_of(points: str) -> tuple[int, int] | None:
    """The degree of a list's modulus, and the products that it takes; None of the name of a set,
    which has any number."""
    parsed = parse_points(points)
    if isinstance(parsed, str):
        return None
    return sum(map(degree_of, parsed)), sum(map(states_of, parsed))


def tile_of(n: int, r: int, points: str) -> Tile:
    """F(n, r) with as many states as it has at these points, minimal where they serve others.

    >>> tile_of(6, 3, "0,1,-1,2,-2,inf,x^2+1").alpha
    9
    """
    tile, size = Tile(n, r), size_of(points)
    return Tile(n, r, size[1]) if size and size[0] == tile.inputs else tile


def served(points: str, tiles: Iterable[Tile]) -> bool:
    """Whether the points are a set's, or a list whose modulus has the degree and the states of one
    of these tiles."""
    size = size_of(points)
    return size is None or size in ((t.inputs, t.alpha) for t in tiles)


def points_for(points: str, *tiles: Tile) -> str:
    """``points``; "best" where they are a list that serves none of the tiles."""
    return points if served(points, tiles) else "best"


def check_served(points: str, tiles: Iterable[Tile], what: str) -> None:
    """Raise ValueError unless the points serve one of the tiles that ``what`` has."""
    tiles = tuple(tiles)
    if served(points, tiles) or (size := size_of(points)) is None:
        return
    degree, states = size
    known = " or ".join(map(str, sorted({t.inputs for t in tiles})))
    infinite = any(not base_of(f) for f in parse_points(points) if not isinstance(f, str))
    if degree == states:
        hint = "" if infinite else " (infinity counts as one)"
        raise ValueError(
            f"{degree} points given; expected alpha = n + r - 1 = {known}{hint}, as many as {what} "
            "has states"
        )
    if any(t.inputs == degree for t in tiles):
        raise ValueError(
            f"{shortened(points)} has {states} states; {what} has {known}: give {known} points"
        )
    wanted = min((t.inputs for t in tiles), key=lambda inputs: abs(inputs - degree))
    change = f"add {wanted - degree}" if wanted > degree else f"leave out {degree - wanted}"
    raise ValueError(
        f"the factors have degree {degree} together; expected n + r - 1 = {known} for {what}: "
        f"{change}, by points, {'' if infinite else 'infinity, '}or polynomials"
    )
