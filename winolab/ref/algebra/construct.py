"""The matrices of what points name: a modulus, Karatsuba's products, a basis, given matrices."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

from winolab.algorithm import SCALINGS
from winolab.arguments.matrices import Matrices, Matrix
from winolab.points import Modulus, Tile, blocks_of
from winolab.ref.algebra.basis import Stages, legendre
from winolab.ref.algebra.bilinear import (
    Bilinear,
    Rows,
    fractions,
    iterated,
    karatsuba,
    matrix_product,
    modulus,
    transposed,
)
from winolab.ref.algebra.points import as_points
from winolab.ref.arithmetic.rational import number


def constructed(tile: Tile, points: str | Modulus | Matrices) -> Stages:
    """AT, G and BT of what as_points gives for a tile, each as a product of stages.

    Raises ValueError for Legendre's basis of what has no product of polynomials.
    """
    if isinstance(points, Matrices):
        return points.AT, points.G, points.BT
    name, _, base = points.partition(":") if isinstance(points, str) else ("", "", "")
    if name == "legendre":
        return legendre(*_bilinear(tile, as_points(base or "best", tile)))
    H, G, C = map(fractions, _bilinear(tile, points))
    return (_frozen(transposed(H)),), (_frozen(G),), (_frozen(C),)


def multiplied_out(stages: tuple[Matrix, ...]) -> Matrix:
    """The product of a matrix's stages."""
    return reduce(_multiplied, stages)


def scaled(stages: Stages, scaling: str | None) -> Stages:
    """The same with the rows of G and BT scaled, what they lose given to AT."""
    if scaling is None:
        return stages
    AT, G, BT = stages
    columns, rows_G, rows_BT = _scaled(transposed(AT[-1]), G[0], BT[0], scaling)
    return (
        (*AT[:-1], _frozen(transposed(columns))),
        (_frozen(rows_G), *G[1:]),
        (_frozen(rows_BT), *BT[1:]),
    )


def _bilinear(tile: Tile, points: str | Modulus | Matrices) -> Bilinear:
    if points == "karatsuba":
        return karatsuba(tile.n, tile.r)
    if isinstance(points, str) and points.startswith("iterated:"):
        outer, factors, size = blocks_of(points)
        blocks = Tile(tile.n // size, tile.r // size)
        return iterated(_bilinear(blocks, as_points(outer, blocks)), modulus(size, size, factors))
    if isinstance(points, tuple):
        return modulus(tile.n, tile.r, points)
    raise ValueError(f"legendre has no basis of {points}; expected points and other factors")


def _multiplied(a: Matrix, b: Matrix) -> Matrix:
    left, right = ([list(map(number, row)) for row in of] for of in (a, b))
    return _frozen(fractions(matrix_product(left, right)))


def _scaled(AT_columns, G, BT, scaling: str) -> tuple[Rows, Rows, Rows]:
    if scaling not in SCALINGS:
        raise ValueError(
            f"unknown scaling {scaling!r}; expected one of none, {', '.join(SCALINGS)}"
        )
    columns, rows_G, rows_BT = [], [], []
    for a, g, b in zip(AT_columns, G, BT, strict=True):
        s, t = (sum(map(abs, row), Fraction(0)) or Fraction(1) for row in (g, b))
        if scaling != "l1":
            s, t = _nearest_power_of_two(s), _nearest_power_of_two(t)
        if scaling == "filter":
            t = Fraction(1)
        columns.append([v * s * t for v in a])
        rows_G.append([v / s for v in g])
        rows_BT.append([v / t for v in b])
    return columns, rows_G, rows_BT


def _nearest_power_of_two(q: Fraction) -> Fraction:
    """The power of two nearest to q > 0 on the logarithmic scale."""
    e = q.numerator.bit_length() - q.denominator.bit_length()
    return min((Fraction(2) ** k for k in (e - 1, e, e + 1)), key=lambda p: max(p / q, q / p))


def _frozen(rows: Rows) -> Matrix:
    return tuple(map(tuple, rows))
