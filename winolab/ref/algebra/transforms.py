"""Exact transforms of F(n, r) from interpolation points, proved to be convolution when built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import lcm
from typing import Any

import numpy as np

from winolab.algorithm import SCALINGS, Tile
from winolab.arguments.arrays import dtype_of
from winolab.arguments.values import whole
from winolab.points import Modulus, check_served, exact, parse_points, text_of
from winolab.ref.algebra import printed
from winolab.ref.algebra.bilinear import fractions, modulus
from winolab.ref.algebra.points import as_points
from winolab.ref.algebra.printed import Matrix
from winolab.ref.algebra.program import Program, program
from winolab.ref.arithmetic.formats import FORMAT_OF, LONGDOUBLE


@dataclass(frozen=True)
class Programs:
    """The straight-line programs of a tile's three transforms."""

    AT: Program
    G: Program
    BT: Program

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # of many exact constants, once
        return hash((self.AT, self.G, self.BT))


@dataclass(frozen=True)
class Transforms:
    """AT (n × α), G (α × r) and BT (α × α) with y = AT[(G g) ⊙ (BT d)] (Lavin & Gray, eq. 6).

    Rows of exact numbers: ints, Fractions or NumPy's integers. Built only where the identity holds
    exactly: the constructor raises ValueError otherwise, and TypeError that names an element which
    is not exact. It shows its matrices where it is printed, and in a notebook.

    >>> print(str(transforms(1, 2, "0,inf")).split("\\n\\n")[1])
    AT (1 × 2)
      1  1
    """

    AT: Matrix
    G: Matrix
    BT: Matrix
    points: Modulus = ()
    scaling: str | None = None

    def __post_init__(self) -> None:
        for name in ("AT", "G", "BT"):
            object.__setattr__(self, name, _exact_matrix(name, getattr(self, name)))
        prove(self.AT, self.G, self.BT)
        if len(self.points):
            points = parse_points(self.points)
            check_served(text_of(points), [self.tile], f"F({self.n},{self.r})")
            object.__setattr__(self, "points", as_points(points, self.tile))

    @property
    def tile(self) -> Tile:
        return Tile(self.n, self.r, self.alpha)

    @property
    def n(self) -> int:
        return len(self.AT)

    @property
    def r(self) -> int:
        return len(self.G[0])

    @property
    def alpha(self) -> int:
        return len(self.G)

    @cached_property
    def programs(self) -> Programs:
        return Programs(program(self.AT), program(self.G), program(self.BT))

    @cached_property
    def rowwise(self) -> Programs:
        """Each row of each matrix by itself, in index order: no pairs, no shared terms."""
        return Programs(*(program(m, simplify=False) for m in (self.AT, self.G, self.BT)))

    def to_latex(self) -> str:
        r"""The three matrices as pmatrix environments, for a paper; they need amsmath.

        >>> print(transforms(1, 2, "0,inf").to_latex()[:43])
        A^T = \begin{pmatrix}
          1 & 1
        \end{pmatrix}
        """
        return printed.as_latex(self)

    def to_cuda(self) -> str:
        """CUDA C++ device functions ``transform_AT``, ``_G`` and ``_BT``, as in the kernels.

        Constants are the FP32 numbers nearest to the exact ones, in hexadecimal; intrinsics fix one
        rounding an operation.

        >>> "__fmul_rn(0x1.5555560000000p-3f, x[2])" in transforms(4, 3, "paper").to_cuda()
        True
        """
        return printed.as_cuda(self)

    def to_numpy(self, dtype: Any = "float64") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """AT (n × α), G (α × r) and BT (α × α) as arrays, each element rounded once.

        ``dtype`` is a floating-point dtype of NumPy or ml_dtypes, or ``object`` for Fractions.
        Raises TypeError for others.

        >>> AT, G, BT = transforms(2, 3, "0,1,-1,inf").to_numpy("float32")
        >>> G[1].tolist()
        [0.5, 0.5, 0.5]
        """
        made = dtype_of(dtype, "dtype")
        exact_ones = made.kind == "O"
        if not exact_ones and FORMAT_OF.get(made, LONGDOUBLE) is LONGDOUBLE:
            raise TypeError(f"dtype is {made.name}; expected a floating-point one, or object")
        rounded = Fraction if exact_ones else FORMAT_OF[made].round_fraction
        AT, G, BT = (
            np.array([[rounded(v) for v in row] for row in matrix], made)
            for matrix in (self.AT, self.G, self.BT)
        )
        return AT, G, BT

    def __str__(self) -> str:
        return printed.as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return printed.as_html(self)

    def _repr_latex_(self) -> str:
        return printed.as_mathjax(self)

    def equivalent(self, other: Transforms) -> bool:
        """Whether the two are the same up to the order and the scale of their rows."""
        return sorted(self._canonical()) == sorted(other._canonical())

    def _canonical(self) -> list[tuple]:
        """Per state, its rank-one term with each factor's first non-zero entry 1."""
        rows = []
        for a, g, b in zip(zip(*self.AT, strict=True), self.G, self.BT, strict=True):
            leads = [next((v for v in row if v), Fraction(1)) for row in (a, g, b)]
            factors = [tuple(v / s for v in r) for r, s in zip((a, g, b), leads, strict=True)]
            rows.append((*factors, leads[0] * leads[1] * leads[2]))
        return rows


def transforms(
    n: int, r: int, points: str | Sequence | None = None, scaling: str | None = None
) -> Transforms:
    """The exact transforms of F(n, r) at α = n + r − 1 points.

    ``points``: None or "best" (the best known), "paper", "wincnn", a text such as "0,1,-1,inf" or
    a sequence of exact numbers. ``scaling``: None or "none" (integers of the monic polynomials,
    fractions in G as Lavin & Gray print them), "l1" (unit L1 norm of the rows of G and BT, WinRS
    eq. 7), "power_of_two" (the same, to the nearest power of two: exact in binary floating point)
    or "filter" (so for G alone: its rows' sizes differ by more than BT's, which matters where both
    are kept in few exponents, as in fp32_split).

    Raises ValueError for tiles out of range, wrong or repeated points, unknown scaling; TypeError
    for points that are not exact, n and r that are no integers.

    >>> print(*transforms(2, 3, "0,1,-1,inf").G[1])
    1/2 1/2 1/2
    """
    tile = Tile(whole(n, "n"), whole(r, "r"))
    return _build(tile, as_points(points, tile), None if scaling == "none" else scaling)


@lru_cache(maxsize=512)
def _build(tile: Tile, points: Modulus, scaling: str | None) -> Transforms:
    H, G, C = map(fractions, modulus(tile.n, tile.r, points))
    if scaling is not None:
        H, G, C = _scaled(H, G, C, scaling)
    return Transforms(tuple(zip(*H, strict=True)), _frozen(G), _frozen(C), points, scaling)


def _scaled(AT_columns, G, BT, scaling: str):
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


def prove(AT: Matrix, G: Matrix, BT: Matrix) -> None:
    """Raise ValueError unless Aᵀ[(G g) ⊙ (Bᵀ d)] is correlation for every g and d, exactly.

    The identity is trilinear, so it holds if and only if it holds for unit vectors:
    Σ_j AT[i,j]·G[k,j]·BT[j,l] = 1 where l = i + k and 0 elsewhere. That is what is checked, over
    integers (each state's row brought to a common denominator), whatever built the matrices.
    """
    n, alpha, r = len(AT), len(G), len(G[0])
    shapes = [(n, alpha), (alpha, r), (alpha, n + r - 1)]
    for name, matrix, (rows, columns) in zip(("AT", "G", "BT"), (AT, G, BT), shapes, strict=True):
        if len(matrix) != rows or any(len(row) != columns for row in matrix):
            raise ValueError(f"{name} is not {rows} × {columns}")
    columns_AT, d1 = _integers(list(zip(*AT, strict=True)))
    rows_G, d2 = _integers(G)
    rows_BT, d3 = _integers(BT)
    per_state = [a * b * c for a, b, c in zip(d1, d2, d3, strict=True)]
    common = lcm(*per_state)
    weights = np.array([common // d for d in per_state], dtype=object)
    left = columns_AT[:, :, None] * rows_G[:, None, :] * weights[:, None, None]
    product = left.reshape(alpha, n * r).T.dot(rows_BT).reshape(n, r, n + r - 1)
    expected = np.zeros_like(product)
    for i in range(n):
        for k in range(r):
            expected[i, k, i + k] = common
    if (product != expected).any():
        i, k, j = (int(v[0]) for v in np.nonzero(product != expected))
        raise ValueError(
            f"not a convolution: the coefficient of g[{k}]·d[{j}] in y[{i}] is "
            f"{Fraction(product[i, k, j], common)}, not {int(j == i + k)}"
        )


def _integers(rows: Sequence[Sequence[Fraction]]) -> tuple[np.ndarray, list[int]]:
    """Each row times its common denominator, as Python integers, and the denominators."""
    denominators = [lcm(*(v.denominator for v in row)) for row in rows]
    scaled = np.array(
        [[int(v * d) for v in row] for row, d in zip(rows, denominators, strict=True)], dtype=object
    )
    return scaled, denominators


def _frozen(rows: list[list[Fraction]]) -> Matrix:
    return tuple(map(tuple, rows))


def _exact_matrix(name: str, rows: Any) -> Matrix:
    """The matrix in Python's own rational numbers. Raises TypeError for others, ValueError where
    there are none."""
    made = []
    for i, row in enumerate(_listed(name, rows)):
        made.append([])
        for j, value in enumerate(_listed(f"{name}[{i}]", row)):
            if (q := exact(value)) is None:
                raise TypeError(
                    f"{name}[{i}][{j}] is {value!r}; expected an exact number, an int or a Fraction"
                )
            made[i].append(q)
    return _frozen(made)


def _listed(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} is {values!r}; expected a list")
    if not (found := tuple(values)):
        raise ValueError(f"{name} is empty; expected AT n × α, G α × r and BT α × α")
    return found
