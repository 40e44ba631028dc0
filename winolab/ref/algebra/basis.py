"""Transforms that run through another basis of the polynomials: the same matrices, in two stages.

Barabasz 2020 (2004.11077) evaluates and interpolates in the basis of Legendre's polynomials. With
its monic polynomials as columns of P, G = (G P)·P⁻¹, AT = P⁻ᵀ·(Pᵀ AT) and BT = (BT P⁻ᵀ)·Pᵀ, each P
of the size that fits: exactly nothing changes; rounded, constants are others and more.
"""

from __future__ import annotations

from fractions import Fraction

from winolab.arguments.matrices import Matrix
from winolab.ref.algebra.bilinear import Rows, matrix_product, transposed
from winolab.ref.arithmetic import rational
from winolab.ref.arithmetic.rational import number

Stages = tuple[tuple[Matrix, ...], tuple[Matrix, ...], tuple[Matrix, ...]]


def legendre(H: Rows, G: Rows, C: Rows) -> Stages:
    """The stages of AT = Hᵀ, G and BT = C through Legendre's polynomials."""
    n, r, inputs = len(H[0]), len(G[0]), len(C[0])
    of_h, of_g, of_c = map(_polynomials, (n, r, inputs))
    back_h, back_g, back_c = map(_inverse, (of_h, of_g, of_c))
    return (
        (_frozen(transposed(back_h)), _frozen(transposed(matrix_product(H, of_h)))),
        (_frozen(matrix_product(G, of_g)), _frozen(back_g)),
        (_frozen(matrix_product(C, transposed(back_c))), _frozen(transposed(of_c))),
    )


def _polynomials(size: int) -> Rows:
    """The monic polynomials as columns, by their recurrence of three terms."""
    columns = [[number(int(i == k)) for i in range(size)] for k in range(min(size, 2))]
    for k in range(1, size - 1):
        q = number(Fraction(k * k, 4 * k * k - 1))
        moved = [number(0), *columns[k][:-1]]
        columns.append([v - q * w for v, w in zip(moved, columns[k - 1], strict=True)])
    return transposed(columns)


def _inverse(upper: Rows) -> Rows:
    """The inverse of an upper triangular matrix of ones on the diagonal."""
    size = len(upper)
    made = [[number(int(i == j)) for j in range(size)] for i in range(size)]
    for i in reversed(range(size)):
        for k in range(i + 1, size):
            if q := upper[i][k]:
                made[i] = [v - q * w for v, w in zip(made[i], made[k], strict=True)]
    return made


def _frozen(rows: Rows) -> Matrix:
    return tuple(tuple(map(rational.fraction, row)) for row in rows)
