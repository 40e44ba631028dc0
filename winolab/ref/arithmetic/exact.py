"""Exact and mpmath arithmetic, and what every arithmetic offers."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from numpy.typing import ArrayLike, NDArray

from winolab.arguments.values import whole
from winolab.ref.arithmetic import rational
from winolab.ref.arithmetic.elements import number, reals
from winolab.ref.arithmetic.formats import FORMATS

Carrier = NDArray[Any]
MOST_BITS = 1 << 16  # of Mp


class Arithmetic(ABC):
    """What an algorithm needs of numbers; one rounding an operation unless exact."""

    exact: bool = False

    @property
    @abstractmethod
    def name(self) -> str:
        """Text that `arithmetic` reads back."""

    @abstractmethod
    def asarray(self, x: ArrayLike) -> Carrier:
        """A carrier of x, rounded to the storage format."""

    @abstractmethod
    def constant(self, q: Fraction | int) -> Any:
        """A carrier scalar of q, correctly rounded once to the transform format."""

    @abstractmethod
    def to_float64(self, y: Carrier) -> NDArray[np.float64]:
        """The values as float64, rounded once where they do not fit."""

    @abstractmethod
    def matmul(self, a: Carrier, b: Carrier) -> Carrier:
        """a (..., M, K) @ b (..., K, N), products summed over K in index order.

        Operands are rounded to the product format, the sum has the accumulate format and the
        accumulation's order, and the result is rounded to the transform format.
        """

    @property
    def of_filters(self) -> Arithmetic:
        """The arithmetic of the filter's transform."""
        return self

    @property
    def of_outputs(self) -> Arithmetic:
        """The arithmetic of the output transform."""
        return self

    def of_data(self, a: Carrier, b: Carrier) -> Arithmetic:
        """This arithmetic with what it has to know of the two tensors of a convolution."""
        return self

    def of_states(self, v: Iterable[Carrier], u: Carrier) -> Arithmetic:
        """This arithmetic with what it has to know of all operands of a convolution's products: v
        are the input's states (states, tiles, K), in blocks, u the filter's (states, K, OC)."""
        return self

    def tiles(
        self, engine: Any, x: NDArray[Any], w: NDArray[Any], ids: NDArray[Any]
    ) -> Iterator[tuple[NDArray[np.intp], Carrier]] | None:
        """What the engine's blocks are, where the arithmetic evaluates whole tiles itself, as a GPU
        does; otherwise None."""
        return None

    def unforeseen(self) -> Exception:
        """What is raised where roundings have to be known before the data."""
        return TypeError(f"{self.name} states no roundings; expected exact, mp or a Float")

    def exponents(self, gains: tuple[Fraction, Fraction]) -> tuple[int, int]:
        """Exponents of the powers of two that scale the tensors; ``gains``: see Scale.exponents."""
        return 0, 0

    def add(self, a: Any, b: Any) -> Any:
        """a + b."""
        return a + b

    def sub(self, a: Any, b: Any) -> Any:
        """a - b."""
        return a - b

    def mul(self, a: Any, b: Any) -> Any:
        """a * b."""
        return a * b

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once."""
        return a * b + c


def _objects(x: NDArray[Any], convert: Any) -> Carrier:
    out = np.empty(x.shape, object)
    out.reshape(-1)[:] = [convert(v) for v in x.reshape(-1).tolist()]
    return out


def integer_matmul(a: Carrier, b: Carrier) -> Carrier:
    """Matrix product of object arrays of int; through float64 where every factor and every sum
    stays below 2**53, and by FLINT where that is installed and the matrices are large."""

    def largest(x: Carrier) -> int:
        flat = x.reshape(-1).tolist()
        return max(max(flat), -min(flat), 1) if flat else 1  # zeros hide no large factor

    if largest(a) * largest(b) * a.shape[-1] < 1 << 53:
        product = np.matmul(a.astype(np.float64), b.astype(np.float64))
        return _objects(product, int)
    return rational.matmul(a, b)


def whole_numbers(x: Carrier) -> tuple[Carrier, int]:
    """int, and their denominator: x of int and Fraction over the common one."""
    flat = x.reshape(-1).tolist()
    if all(type(v) is int for v in flat):
        return x, 1
    scale = math.lcm(*{int(v.denominator) for v in flat})  # NumPy's integers wrap
    return _objects(x, lambda v: int(v.numerator) * (scale // int(v.denominator))), scale


def _whole_floats(x: NDArray[np.float64]) -> tuple[Carrier, int]:
    """int, and their denominator, of finite float64, by significands and exponents."""
    significand, exponent = np.frexp(x)
    whole = (significand * 2.0**53).astype(np.int64)
    zeros = np.frexp((whole & -whole).astype(np.float64))[1] - 1  # behind the last set bit
    lowest = np.where(whole != 0, exponent - 53 + zeros, 0)
    least = min(0, int(lowest.min(initial=0)))
    shifts = np.where(whole != 0, lowest - least, 0).reshape(-1).tolist()
    odd = np.where(whole != 0, whole >> np.maximum(zeros, 0), 0).reshape(-1).tolist()
    out = np.empty(x.shape, object)
    out.reshape(-1)[:] = [v << s for v, s in zip(odd, shifts, strict=True)]
    return out, 1 << -least


@dataclass(frozen=True)
class Exact(Arithmetic):
    """Rational numbers: int and Fraction in object arrays, no rounding anywhere."""

    exact = True

    @property
    def name(self) -> str:
        return "exact"

    def asarray(self, x: ArrayLike) -> Carrier:
        """Exact values of x, int and Fraction. Raises ValueError on NaN, TypeError on no number."""
        x = reals(x)
        if x.dtype != object:
            x = _objects(x, number)
        if any(type(v) is float for v in x.reshape(-1)):
            raise ValueError(
                "exact arithmetic on NaN or infinity; expected finite numbers; use a "
                "floating-point arithmetic such as 'fp64' for such data"
            )
        return x

    def whole(self, x: ArrayLike) -> tuple[Carrier, int]:
        """int, and what they are times x; as ``asarray``."""
        x = np.asarray(x)
        if x.dtype.char in "efd" and np.isfinite(x).all():
            return _whole_floats(x.astype(np.float64))
        return whole_numbers(self.asarray(x))

    def constant(self, q: Fraction | int) -> Fraction | int:
        q = Fraction(q)
        return q.numerator if q.denominator == 1 else q

    def to_float64(self, y: Carrier) -> NDArray[np.float64]:
        return FORMATS["fp64"].nearest(np.asarray(y, object))

    def matmul(self, a: Carrier, b: Carrier) -> Carrier:
        (left, p), (right, q) = whole_numbers(a), whole_numbers(b)
        product = integer_matmul(left, right)
        return product if p * q == 1 else product * Fraction(1, p * q)


@functools.cache
def _context(bits: int) -> Any:
    context: Any = mpmath.MPContext()  # private: mpmath.mp belongs to the user
    context.prec = bits
    return context


@dataclass(frozen=True)
class Mp(Arithmetic):
    """mpmath floating point of a given precision, round to nearest even, unbounded exponents.

    Sums of products are exact and rounded once.
    """

    bits: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", whole(self.bits, "bits of mp"))
        if not 2 <= self.bits <= MOST_BITS:
            raise ValueError(f"precision 'mp:{self.bits}'; expected 2 to {MOST_BITS} bits")

    @property
    def name(self) -> str:
        return f"mp:{self.bits}"

    @property
    def context(self) -> Any:
        """mpmath context that the values belong to."""
        return _context(self.bits)

    def asarray(self, x: ArrayLike) -> Carrier:
        """x rounded once to the precision. Raises TypeError on what is no number."""
        x = np.asarray(x)
        return _objects(x if x.dtype == object else reals(x), self._convert)

    def _convert(self, v: Any) -> Any:
        if isinstance(v, self.context.mpf):
            return +v
        if not hasattr(v, "_mpf_") and type(v := number(v)) is Fraction:
            return self.constant(v)
        return +self.context.mpf(v)

    def constant(self, q: Fraction | int) -> Any:
        q = Fraction(q)
        return self.context.fdiv(q.numerator, q.denominator)

    def to_float64(self, y: Carrier) -> NDArray[np.float64]:
        return FORMATS["fp64"].nearest(np.asarray(y, object))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        exact = np.frompyfunc(
            lambda x, y, z: self.context.fadd(self.context.fmul(x, y, exact=True), z), 3, 1
        )
        return exact(a, b, c)

    def matmul(self, a: Carrier, b: Carrier) -> Carrier:
        """Exact sums rounded once; NaN and infinity reach the sums of their row or column only."""
        (left, p), (right, q) = _common(a), _common(b)
        product = integer_matmul(left, right)
        y = _objects(product, lambda v: self.context.ldexp(self.context.mpf(int(v)), p + q))
        if _all_finite(a) and _all_finite(b):
            return y
        with np.errstate(invalid="ignore"):
            special = np.einsum("...mk,...kn->...mn", _signs(a), _signs(b))
        return np.where(np.isfinite(special), y, _objects(special, self.context.mpf))


def _common(x: Carrier) -> tuple[Carrier, int]:
    """Integers and e, with which the mpf x are integer · 2^e; 0 in the place of NaN, infinity."""
    parts = [v._mpf_ for v in x.reshape(-1)]
    exponent = min((e for _, whole, e, _ in parts if whole), default=0)
    out = np.empty(x.shape, object)
    out.reshape(-1)[:] = [
        (-1 if sign else 1) * (int(whole) << e - exponent) if whole else 0
        for sign, whole, e, _ in parts
    ]
    return out, exponent


def _all_finite(x: Carrier) -> bool:
    """Whether none of the mpf x is NaN or infinite: has an exponent, but no significand."""
    return all(whole or not exponent for _, whole, exponent, _ in (v._mpf_ for v in x.flat))


def _signs(x: Carrier) -> NDArray[np.float64]:
    """The signs of the mpf x; NaN and infinity as they are."""

    def sign(v: Any) -> float:
        negative, whole, exponent, _ = v._mpf_
        if not whole:
            return float(v) if exponent else 0.0
        return -1.0 if negative else 1.0

    return _objects(x, sign).astype(np.float64)
