"""What arrays of numbers may hold, and the exact value of each element."""

from __future__ import annotations

import math
import numbers
import reprlib
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

SMALL_INTEGERS = ("int2", "uint2", "int4", "uint4")
SMALL_FLOATS = (
    "bfloat16",
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
)  # fmt: skip


def _named(names: tuple[str, ...]) -> frozenset[np.dtype[Any]]:
    """The dtypes of those names that this release of ml_dtypes has."""
    return frozenset(np.dtype(getattr(ml_dtypes, n)) for n in names if hasattr(ml_dtypes, n))


INTEGERS = frozenset(map(np.dtype, np.typecodes["AllInteger"])) | _named(SMALL_INTEGERS)
FLOATS = frozenset(map(np.dtype, np.typecodes["Float"])) | _named(SMALL_FLOATS)
MOST_BITS = 1 << 20  # that an element given by its exponent may have before or behind the point
CARRIED = frozenset({int, Fraction})
EXPECTED = (
    "expected a real number: int, Fraction, float, Decimal or one of NumPy, ml_dtypes, mpmath"
)


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same type in the machine's byte order."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def reals(x: ArrayLike, name: str = "the array") -> NDArray[Any]:
    """``x`` as an array of real numbers in the machine's byte order.

    Elements of an object array are made int or Fraction, of the same value; NaN and infinities are
    floats. Raises TypeError for what holds no real numbers, naming the element where it is one.
    """
    x = np.asarray(x)
    if x.dtype == object:
        return _elements(x, name)
    known = native(x.dtype)
    if known not in INTEGERS and known not in FLOATS:
        raise TypeError(f"{name} has dtype {x.dtype}; expected numbers: integers, floats, objects")
    return x.astype(known, copy=False)


def _elements(x: NDArray[Any], name: str) -> NDArray[Any]:
    flat = x.reshape(-1).tolist()
    if all(type(v) in CARRIED for v in flat):
        return x
    out = np.empty(x.shape, object)
    for i, (at, v) in enumerate(zip(np.ndindex(x.shape), flat, strict=True)):
        try:
            flat[i] = number(v)
        except (TypeError, ValueError) as error:
            where = ", ".join(map(str, at))
            raise type(error)(f"{name}[{where}] is {reprlib.repr(v)}; {error}") from None
    out.reshape(-1)[:] = flat
    return out


def number(v: Any) -> int | Fraction | float:
    """The value of a real number of any type: int or Fraction, or a float that is not finite.

    Raises TypeError for what is no real number (truth values are none), ValueError for one with
    more than MOST_BITS bits before or behind the point.
    """
    if type(v) in CARRIED:
        return v
    if isinstance(v, float | np.floating):
        return _ratio(*v.as_integer_ratio()) if np.isfinite(v) else float(v)
    if isinstance(v, np.generic):
        if v.dtype in INTEGERS:
            return int(v)
        if v.dtype in FLOATS:
            return number(float(v))
        raise TypeError(EXPECTED)
    if isinstance(v, Decimal):
        return _decimal(v)
    if hasattr(v, "_mpf_"):
        return _mpf(v)
    if isinstance(v, numbers.Rational) and not isinstance(v, bool):
        return _ratio(int(v.numerator), int(v.denominator))
    raise TypeError(EXPECTED)


def _ratio(p: int, q: int) -> int | Fraction:
    return p if q == 1 else Fraction(p, q)


def _decimal(v: Decimal) -> int | Fraction | float:
    if not v.is_finite():
        return math.nan if v.is_nan() else math.copysign(math.inf, v)
    if v:
        _check_bits(3 * max(abs(v.adjusted()), abs(int(v.as_tuple().exponent))))
    return _ratio(*v.as_integer_ratio())


def _mpf(v: Any) -> int | Fraction | float:
    sign, significand, exponent, bits = v._mpf_
    if not significand:
        return float(v) if exponent else 0
    _check_bits(max(abs(exponent), abs(exponent + bits)))
    q = Fraction(int(-significand if sign else significand)) * Fraction(2) ** int(exponent)
    return _ratio(q.numerator, q.denominator)


def _check_bits(bits: int) -> None:
    if bits > MOST_BITS:
        raise ValueError(f"expected at most {MOST_BITS} bits before and behind the point")
