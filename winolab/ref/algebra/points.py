"""Interpolation points: named sets and the caller's own; all exact, infinity included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from importlib import resources
from itertools import count, islice
from typing import Any

from winolab.points import (
    INFINITY,
    NAMES,
    Matrices,
    Modulus,
    Point,
    check_served,
    fourier_of,
    is_named,
    parse_points,
    shortened,
    show,
    text_of,
    tile_of,
)
from winolab.tile import Tile

__all__ = ["INFINITY", "NAMES", "Point", "as_points", "best_table", "named_points", "show"]

# Named sets: the finite points in order; infinity completes each of them.
#   paper   0, ±1, ±2, ±1/2, ±3, ±1/3, … (Im2col-Winograd, section 5.3; WinRS, section 5)
#   wincnn  0, ±1, ±2, ±1/2 as in wincnn's examples, continued by powers of two: ±4, ±1/4, …
#   best    the best known for each alpha, found by winolab.best_points (data/best_points.json), or
#           for F(n, r) where a record is better (data/records.json, which no kernel's tiles have)


def named_points(name: str, alpha: int, r: int | None = None) -> tuple[Point, ...]:
    """The ``alpha`` points of the set ``name``, infinity last: for any tile, or for F(n, ``r``).

    "best:fp16" are those of least error in a format, "best" where the records have no others.
    Raises ValueError for an unknown name or format.
    """
    name, _, precision = name.partition(":")
    if precision:
        found = _by_format()
        if precision not in found:
            raise ValueError(
                f"points 'best:{shortened(precision)}'; expected a format that records are kept "
                f"for: {', '.join(found)}"
            )
        if (alpha, r) in found[precision]:
            return found[precision][alpha, r]
    if name == "best":
        if (alpha, r) in _defaults():
            return _defaults()[alpha, r]
        finite = [Fraction(p) for p in best_table()[str(alpha)]["points"]]
    elif name in ("paper", "wincnn"):
        finite = list(islice(_mirrored(1 if name == "paper" else 0), alpha - 1))
    else:
        raise ValueError(f"unknown points {name!r}; expected one of {', '.join(NAMES)}")
    return (*finite, INFINITY)


@cache
def best_table() -> dict:
    """What the searches found: alpha -> points, scores, how they were found."""
    return _data("best_points.json")


@cache
def record_table() -> list[dict]:
    """The records of F(n, r): points, errors, who found them (winolab.ref.records.table)."""
    return _data("records.json")


@cache
def published() -> dict:
    """Sets that others published, where they are quoted from, and what is not compared."""
    return _data("published.json")


@cache
def _defaults() -> dict[tuple[int, int | None], tuple[Point, ...]]:
    """(alpha, r) -> the record that is the default."""
    return {(row["states"], row["r"]): _listed(row) for row in record_table() if row["default"]}


@cache
def _by_format() -> dict[str, dict[tuple[int, int | None], tuple[Point, ...]]]:
    """Format -> (alpha, r) -> the points of its best record of n + r − 1 states."""
    found: dict[str, dict[tuple[int, int | None], tuple[Point, ...]]] = {}
    for row in record_table():
        if row["states"] == row["n"] + row["r"] - 1:
            for name in row["best"]:
                found.setdefault(name, {})[row["states"], row["r"]] = _listed(row)
    return found


def _listed(row: dict) -> tuple[Point, ...]:
    return tuple(INFINITY if p == "inf" else Fraction(p) for p in row["points"].split(","))


def _data(name: str) -> Any:
    return json.loads(resources.files("winolab.ref.algebra").joinpath(f"data/{name}").read_text())


def _mirrored(step: int) -> Iterator[Fraction]:
    """0, ±1, then ±q, ±1/q for q = 2, then q + 1 (step 1) or 2q (step 0)."""
    yield Fraction(0)
    yield from (Fraction(1), Fraction(-1))
    for i in count(0):
        q = Fraction(2 + i) if step else Fraction(2) ** (i + 1)
        yield from (q, -q, 1 / q, -1 / q)


def as_points(points: Any, tile: Tile) -> str | Modulus | Matrices:
    """What a tile is built of: the factors of its modulus, from a name, a text "0,1,-1/2,inf" or a
    sequence, matrices, or the name of another construction.

    Raises ValueError where their degrees do not add up to its inputs, and what
    :func:`parse_points` does.
    """
    parsed = parse_points(points)
    if isinstance(parsed, str) and is_named(parsed):
        return named_points(parsed, tile.inputs, tile.r)
    text = text_of(parsed)
    check_served(text, [tile_of(tile.n, tile.r, text)], str(tile))
    return fourier_of(text, tile.inputs) or parsed
