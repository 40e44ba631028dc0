"""Exact transforms of F(n, r) from interpolation points, proved to be convolution when built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from math import lcm, prod
from typing import Any, NamedTuple

import numpy as np

from winolab.algorithm import Tile
from winolab.arguments.arrays import dtype_of
from winolab.arguments.matrices import Matrices, Matrix, matrix
from winolab.arguments.values import whole
from winolab.arguments.words import type_of
from winolab.points import Modulus, check_served, parse_points, text_of
from winolab.ref.algebra import printed
from winolab.ref.algebra.construct import Stages, constructed, multiplied_out, scaled
from winolab.ref.algebra.points import as_points
from winolab.ref.algebra.program import Program, chained, program
from winolab.ref.arithmetic.formats import FORMAT_OF, LONGDOUBLE
from winolab.ref.arithmetic.rational import integer

Rows = list[list[int]]


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
    """AT (n × α), G (α × r) and BT (α × n + r − 1), y = AT[(G g) ⊙ (BT d)] (Lavin & Gray, eq. 6).

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
    # AT, G and BT as products, the last factor first; none where each runs as it is.
    stages: Stages | tuple[()] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name in ("AT", "G", "BT"):
            object.__setattr__(self, name, matrix(name, getattr(self, name), texts=False))
        prove(self.AT, self.G, self.BT)
        if len(self.points):
            points = parse_points(self.points)
            check_served(text_of(points), [self.tile], f"F({self.n},{self.r})")
            object.__setattr__(self, "points", as_points(points, self.tile))
        for whole_one, stages in zip((self.AT, self.G, self.BT), self.stages, strict=False):
            if multiplied_out(stages) != whole_one:
                raise ValueError("the stages' product is another matrix")

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
        return self._programs(True)

    def _programs(self, simplify: bool) -> Programs:
        stages = self.stages or ((self.AT,), (self.G,), (self.BT,))
        return Programs(
            *(chained([program(m, simplify) for m in reversed(some)]) for some in stages)
        )

    @cached_property
    def rowwise(self) -> Programs:
        """Each row of each matrix by itself, in index order: no pairs, no shared terms."""
        return self._programs(False)

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
        """Whether the two are the same up to the order and the scale of their rows. Raises
        TypeError for what is no Transforms."""
        if not isinstance(other, Transforms):
            raise TypeError(f"{type_of(other)} is compared; expected Transforms")
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
    n: int | None = None,
    r: int | None = None,
    points: str | Sequence | Transforms | None = None,
    scaling: str | None = None,
    *,
    matrices: Any = None,
) -> Transforms:
    """The exact transforms of F(n, r), at α = n + r − 1 points or by other bilinear algorithms.

    ``points``: None or "best" (the best known), "paper", "wincnn", a text such as "0,1,-1,inf" or
    a sequence of exact numbers. A modulus may have other factors, "0,1,-1,inf,x^2+1", whose degrees
    add up to n + r − 1: irreducible polynomials, powers "(x-1)^2", complex points "1+i"; α is the
    number of products. "karatsuba", "sfc:6" (symbolic Fourier convolution of length 6) and
    "legendre", "legendre:0,1,-1,inf" (through the basis of Legendre's polynomials) are constructed,
    and "iterated:0,1,-1,inf*0,1,inf" (products of blocks, whose terms the second points multiply).
    ``matrices``, in place of n, r and points: AT, G and BT, their text, or the path of a file of
    it (winolab.arguments.matrices).

    ``scaling``: None or "none" (integers of the monic polynomials, fractions in G as Lavin & Gray
    print them), "l1" (unit L1 norm of the rows of G and BT, WinRS eq. 7), "power_of_two" (the same,
    to the nearest power of two: exact in binary floating point) or "filter" (so for G alone: its
    rows' sizes differ by more than BT's, which matters where both are kept in few exponents, as in
    fp32_split).

    Raises ValueError for tiles out of range, wrong or repeated points, unknown scaling and matrices
    that are no convolution, naming the coefficient; TypeError for points that are not exact, n and
    r that are no integers; OSError for a file that cannot be read.

    >>> print(*transforms(2, 3, "0,1,-1,inf").G[1])
    1/2 1/2 1/2
    """
    scaling = None if scaling == "none" else scaling
    if matrices is not None:
        if (n, r, points) != (None, None, None):
            raise TypeError("transforms takes n and r, or matrices, which say what they are for")
        given = Matrices.of(matrices)
        return _build(Tile(given.n, given.r, given.alpha), given, scaling)
    if n is None or r is None:
        raise TypeError("transforms takes n and r, such as transforms(6, 3), or matrices")
    tile = Tile(whole(n, "n"), whole(r, "r"))
    return _build(tile, as_points(points, tile), scaling)


@lru_cache(maxsize=512)
def _build(tile: Tile, points: str | Modulus | Matrices, scaling: str | None) -> Transforms:
    stages = scaled(constructed(tile, points), scaling)
    single = all(len(of) == 1 for of in stages)
    AT, G, BT = map(multiplied_out, stages)
    factors = points if isinstance(points, tuple) else ()
    return Transforms(AT, G, BT, factors, scaling, () if single else stages)


def prove(AT: Matrix, G: Matrix, BT: Matrix) -> None:
    """Raise ValueError unless Aᵀ[(G g) ⊙ (Bᵀ d)] is correlation for every g and d, exactly.

    The identity is trilinear, so it holds if and only if it holds for unit vectors:
    Σ_j AT[i,j]·G[k,j]·BT[j,l] = 1 where l = i + k and 0 elsewhere. That is what is checked, over
    integers (each state's row brought to a common denominator), whatever built the matrices.
    """
    n, alpha, r = len(AT), len(G), len(G[0])
    shapes = [(n, alpha), (alpha, r), (alpha, n + r - 1)]
    for name, of, (rows, columns) in zip(("AT", "G", "BT"), (AT, G, BT), shapes, strict=True):
        if len(of) != rows or any(len(row) != columns for row in of):
            raise ValueError(
                f"{name} is not {rows} × {columns}; expected AT n × α, G α × r and BT α × n + r − 1"
            )
    left, d1 = _integers(list(zip(*AT, strict=True)))
    middle, d2 = _integers(G)
    right, d3 = _integers(BT)
    per_state = [a * b * c for a, b, c in zip(d1, d2, d3, strict=True)]
    common = lcm(*per_state)
    weights = [common // d for d in per_state]
    found = list(_packed(left, middle, right, weights, (n, r, common)))
    if found != list(_packed_identity(n, r, common, found[0].bits)):
        _refuse(left, middle, right, weights, common)


class _Packed(NamedTuple):
    """The coefficients of one output, each in ``bits`` of an integer."""

    coefficients: Any  # Python's integer or FLINT's, which compare
    bits: int


def _packed(
    left: Rows, middle: Rows, right: Rows, weights: list[int], of: tuple[int, int, int]
) -> Iterator[_Packed]:
    """Per output, Σ over states of AT·G·BT for every tap and input (Kronecker's substitution).

    A state's rows of G and BT are numbers in a base beyond what any coefficient can be, so that
    one product of two long integers makes all of theirs. No coefficient is beyond the sum of the
    states' largest products, nor beyond what it is to be, ``common`` or 0 (``of``: n, r, common).
    """
    n, r, common = of
    largest = (
        w * prod(max(map(abs, row)) for row in rows)
        for w, *rows in zip(weights, left, middle, right, strict=True)
    )
    bits = max(sum(largest), common).bit_length() + 2
    inputs = n + r - 1
    states = [
        integer(w * _long(g, bits * inputs)) * integer(_long(b, bits))
        for w, g, b in zip(weights, middle, right, strict=True)
    ]
    for i in range(n):
        terms = (row[i] * state for row, state in zip(left, states, strict=True) if row[i])
        yield _Packed(sum(terms, integer(0)), bits)


def _long(row: list[int], bits: int) -> int:
    return sum(v << bits * k for k, v in enumerate(row) if v)


def _packed_identity(n: int, r: int, common: int, bits: int) -> Iterator[_Packed]:
    for i in range(n):
        places = (k * (n + r - 1) + i + k for k in range(r))
        yield _Packed(sum(common << bits * place for place in places), bits)


def _refuse(left: Rows, middle: Rows, right: Rows, weights: list[int], common: int) -> None:
    """Raise ValueError for the first coefficient that is wrong."""
    columns = [list(column) for column in zip(*right, strict=True)]
    for i in range(len(left[0])):
        for k in range(len(middle[0])):
            states = [a[i] * g[k] * w for a, g, w in zip(left, middle, weights, strict=True)]
            for j, column in enumerate(columns):
                found = Fraction(sum(s * b for s, b in zip(states, column, strict=True)), common)
                if found != (j == i + k):
                    raise ValueError(
                        f"not a convolution: the coefficient of g[{k}]·d[{j}] in y[{i}] is "
                        f"{found}, not {int(j == i + k)}"
                    )


def _integers(rows: Sequence[Sequence[Fraction]]) -> tuple[Rows, list[int]]:
    """Each row times its common denominator, as Python integers, and the denominators."""
    denominators = [lcm(*(v.denominator for v in row)) for row in rows]
    scaled = [
        [v.numerator * (d // v.denominator) for v in row]
        for row, d in zip(rows, denominators, strict=True)
    ]
    return scaled, denominators
