"""What algorithms are made of, as a caller gives it: points and other factors of a modulus, one by
one or by the name of a set, a construction by its name, or matrices.

Most are interpolation points, so all are called points; winolab.arguments has the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from winolab.arguments.factors import (
    DIGITS,
    INFINITY,
    Factor,
    Modulus,
    Point,
    as_factor,
    base_of,
    degree_of,
    distinct,
    exact,
    is_factor,
    karatsuba_states,
    shortened,
    show,
    split,
    states_of,
    symbolic_fourier,
)
from winolab.arguments.matrices import NAMES as MATRICES
from winolab.arguments.matrices import Matrices, is_line
from winolab.arguments.words import plural
from winolab.tile import Tile

__all__ = [
    "DIGITS", "INFINITY", "NAMES", "Factor", "Matrices", "Modulus", "Point", "Tile", "check_served",
    "exact", "fourier_of", "is_named", "parse_points", "points_for", "served", "shortened", "show",
    "text_of", "tile_of",
]  # fmt: skip

# Sets that have points for every alpha (winolab.ref.algebra.points.named_points).
NAMES = ("best", "paper", "wincnn")
_NAMED = re.compile(r"best(:[\w:]+)?|paper|wincnn")  # "best:fp16": the best in a format
# Constructions: Karatsuba's products; symbolic Fourier convolution of a length; points whose
# transforms run through the basis of Legendre's polynomials; products of blocks of terms, whose own
# terms the second points multiply.
CONSTRUCTIONS = ("karatsuba", "sfc:6", "legendre", "iterated:0,1,-1,inf*0,1,inf")
_CONSTRUCTION = re.compile(
    r"karatsuba|sfc:([1-9]\d?)|legendre(?::(.+))?|iterated:([^*]+)\*([^*]+)", re.DOTALL
)


def parse_points(points: Any) -> str | Modulus | Matrices:
    """The name of a set or a construction, distinct exact factors, most of them points, or
    matrices: None is "best", and "best:fp16" the set of least error in a format of the records.

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
    if isinstance(points, Matrices) or all(hasattr(points, name) for name in MATRICES):
        return Matrices.of(points)
    if isinstance(points, str):
        name = points.strip()
        if is_named(name):
            return name
        if is_line(name):
            return Matrices.of(name)
        if made := _CONSTRUCTION.fullmatch(name):
            if made[3]:
                return f"iterated:{text_of(made[3])}*{text_of(made[4])}"
            return f"legendre:{text_of(made[2])}" if made[2] else name
        points = split(points, ",")
        if len(points) == 1 and not is_factor(name):
            raise ValueError(
                f"unknown points {shortened(name)!r}; expected one of {', '.join(NAMES)}, "
                f'{", ".join(CONSTRUCTIONS)}, or a list such as "0,1,-1,2,inf"'
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


def is_named(points: Any) -> bool:
    """Whether it is the name of a set, "best" or "best:fp16"."""
    return isinstance(points, str) and _NAMED.fullmatch(points) is not None


def text_of(points: Any) -> str:
    """The one text of these points, as :func:`parse_points` reads it.

    >>> text_of([0, "2/4", "oo", "x**2 + 1"])
    '0,1/2,inf,x^2+1'
    """
    parsed = parse_points(points)
    return ",".join(map(show, parsed)) if isinstance(parsed, tuple) else str(parsed)


def fourier_of(points: str, inputs: int) -> Modulus | None:
    """The modulus of a symbolic Fourier convolution's name; None of other names."""
    return symbolic_fourier(int(points[4:]), inputs) if points.startswith("sfc:") else None


def blocks_of(points: str) -> tuple[str, Modulus, int]:
    """The outer points of an iterated product's name, the inner factors, and the terms of a block,
    which these multiply."""
    outer, _, inner = points.partition(":")[2].partition("*")
    parsed = parse_points(inner)
    degree = sum(map(degree_of, parsed)) if isinstance(parsed, tuple) else 0
    if not isinstance(parsed, tuple) or degree % 2 == 0:
        raise ValueError(
            f"{shortened(inner)} multiplies no blocks; expected factors of degree 2b - 1 for b "
            "terms, such as 0,1,inf"
        )
    return outer, parsed, (degree + 1) // 2


@lru_cache(maxsize=4096)
def states_at(points: str, n: int, r: int) -> int | None:
    """States of F(n, r) at these points; None where they do not serve it."""
    parsed, inputs = parse_points(points), n + r - 1
    if isinstance(parsed, Matrices):
        return parsed.alpha if (parsed.n, parsed.r) == (n, r) else None
    if isinstance(parsed, str):
        if parsed == "karatsuba":
            return karatsuba_states(n, r)
        name, _, base = parsed.partition(":")
        if name == "legendre":
            return states_at(base or "best", n, r)
        if name == "iterated":
            outer, factors, size = blocks_of(parsed)
            of = None if n % size or r % size else states_at(outer, n // size, r // size)
            return of and of * sum(map(states_of, factors))
        if name != "sfc":
            return inputs
        if inputs < int(base):
            return None
        parsed = symbolic_fourier(int(base), inputs)
    return sum(map(states_of, parsed)) if sum(map(degree_of, parsed)) == inputs else None


def tile_of(n: int, r: int, points: str) -> Tile:
    """F(n, r) with as many states as it has at these points, minimal where they serve others.

    >>> tile_of(6, 3, "0,1,-1,2,-2,inf,x^2+1").alpha
    9
    """
    tile = Tile(n, r)
    states = states_at(points, tile.n, tile.r)
    return Tile(n, r, states) if states else tile


def served(points: str, tiles: Iterable[Tile]) -> bool:
    """Whether the points are a set's, or one of these tiles has the states that F(n, r) has at
    them."""
    return is_named(points) or any(states_at(points, t.n, t.r) == t.alpha for t in tiles)


def points_for(points: str, *tiles: Tile) -> str:
    """``points``; "best" where they serve none of the tiles."""
    return points if served(points, tiles) else "best"


def check_served(points: str, tiles: Iterable[Tile], what: str) -> None:
    """Raise ValueError unless the points serve one of the tiles that ``what`` has."""
    tiles = tuple(tiles)
    if served(points, tiles):
        return
    parsed = parse_points(points)
    known = " or ".join(map(str, sorted({t.inputs for t in tiles})))
    if isinstance(parsed, Matrices):
        raise ValueError(
            f"matrices of F({parsed.n},{parsed.r}) in {plural(parsed.alpha, 'state')}; expected "
            f"{what}'s"
        )
    has = {states_at(points, t.n, t.r) for t in tiles} - {None}
    if has:
        states = " or ".join(map(str, sorted(s for s in has if s)))
        raise ValueError(
            f"{shortened(points)} has {states} states; {what} has {known}: give {known} points"
        )
    if isinstance(parsed, str):
        name, _, length = parsed.partition(":")
        if name == "legendre":
            check_served(length, tiles, what)
        if name == "iterated":
            _, _, size = blocks_of(parsed)
            raise ValueError(
                f"{shortened(parsed)} multiplies blocks of {size} terms; expected n and r that are "
                f"{size} times those of its outer points, not {what}"
            )
        raise ValueError(f"{parsed} serves n + r - 1 = {length} and more; {what} has {known}")
    degree = sum(map(degree_of, parsed))
    infinite = any(not base_of(f) for f in parsed)
    if degree == sum(map(states_of, parsed)):
        hint = "" if infinite else " (infinity counts as one)"
        raise ValueError(
            f"{plural(degree, 'point')} given; expected alpha = n + r - 1 = {known}{hint}, as many "
            f"as {what} has states"
        )
    wanted = min((t.inputs for t in tiles), key=lambda inputs: abs(inputs - degree))
    change = f"add {wanted - degree}" if wanted > degree else f"leave out {degree - wanted}"
    raise ValueError(
        f"the factors have degree {degree} together; expected n + r - 1 = {known} for {what}: "
        f"{change}, by points, {'' if infinite else 'infinity, '}or polynomials"
    )
