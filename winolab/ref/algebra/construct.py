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
    """The same with the rows of G and BT scaled, whatever their stages, what they lose given to
    AT. Raises ValueError for an unknown scaling."""
    if scaling is None:
        return stages
    if scaling not in SCALINGS:
        raise ValueError(
            f"unknown scaling {scaling!r}; expected one of none, {', '.join(SCALINGS)}"
        )
    AT, G, BT = stages
    of_G, of_BT = (_norms(multiplied_out(some), scaling) for some in (G, BT))
    if scaling == "filter":
        of_BT = [Fraction(1)] * len(of_BT)
    columns = [
        [v * s * t for v in a] for a, s, t in zip(transposed(AT[-1]), of_G, of_BT, strict=True)
    ]
    rows_G, rows_BT = (
        [[v / s for v in row] for row, s in zip(some[0], norms, strict=True)]
        for some, norms in ((G, of_G), (BT, of_BT))
    )
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


def _norms(rows: Matrix, scaling: str) -> list[Fraction]:
    """The L1 norm of each row, 1 of one of zeros, or the power of two nearest to it."""
    norms = [sum(map(abs, row), Fraction(0)) or Fraction(1) for row in rows]
    return norms if scaling == "l1" else [_nearest_power_of_two(s) for s in norms]


def _nearest_power_of_two(q: Fraction) -> Fraction:
    """The power of two nearest to q > 0 on the logarithmic scale."""
    e = q.numerator.bit_length() - q.denominator.bit_length()
    return min((Fraction(2) ** k for k in (e - 1, e, e + 1)), key=lambda p: max(p / q, q / p))


def _frozen(rows: Rows) -> Matrix:
    return tuple(map(tuple, rows))
