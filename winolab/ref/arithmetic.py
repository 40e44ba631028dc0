"""Arithmetics that one text of an algorithm runs in: exact, mpmath, and simulated floating point.

An Arithmetic is a hashable value. Its carriers are arrays: object arrays of int and Fraction
(exact), object arrays of mpf (mpmath), float64 where a format is FP64, and float32 for everything
narrower (every value of TF32, BF16, FP16 and FP8 is an FP32 value).
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from numpy.typing import ArrayLike, NDArray

from winolab.ref import accumulate as sums
from winolab.ref.accumulate import Accumulation
from winolab.ref.formats import FORMATS, Format, format_named, nearest_name

Carrier = NDArray[Any]


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


def _numbers(x: ArrayLike) -> NDArray[Any]:
    x = np.asarray(x)
    if x.dtype.kind not in "iuf" and x.dtype.name != "bfloat16":
        raise TypeError(f"array of {x.dtype}: expected real floats or integers; convert it first.")
    return x


def _objects(x: NDArray[Any], convert: Any) -> Carrier:
    out = np.empty(x.shape, object)
    out.reshape(-1)[:] = [convert(v) for v in x.reshape(-1).tolist()]
    return out


def _integer_matmul(a: Carrier, b: Carrier) -> Carrier:
    """Matrix product of object arrays of int; through float64 where every sum stays below 2**53."""

    def largest(x: Carrier) -> int:
        return max((abs(v) for v in x.reshape(-1)), default=0)

    if largest(a) * largest(b) * a.shape[-1] < 1 << 53:
        product = np.matmul(a.astype(np.float64), b.astype(np.float64))
        return _objects(product, int)
    return np.matmul(a, b)


@dataclass(frozen=True)
class Exact(Arithmetic):
    """Rational numbers: int and Fraction in object arrays, no rounding anywhere."""

    exact = True

    @property
    def name(self) -> str:
        return "exact"

    def asarray(self, x: ArrayLike) -> Carrier:
        """Exact values of x (object arrays of int and Fraction pass). Raises ValueError on NaN."""
        x = np.asarray(x)
        if x.dtype == object:
            return x
        x = _numbers(x)
        if x.dtype.kind in "iu":
            return _objects(x, int)
        x = x.astype(np.float64)
        if not np.isfinite(x).all():
            raise ValueError(
                "exact arithmetic on NaN or infinity: expected finite numbers; use a "
                "floating-point arithmetic such as 'fp64' for such data."
            )
        return _objects(x, lambda v: int(v) if v.is_integer() else Fraction(v))

    def constant(self, q: Fraction | int) -> Fraction | int:
        q = Fraction(q)
        return q.numerator if q.denominator == 1 else q

    def to_float64(self, y: Carrier) -> NDArray[np.float64]:
        return _objects(np.asarray(y, object), _nearest_float).astype(np.float64)

    def matmul(self, a: Carrier, b: Carrier) -> Carrier:
        whole, scales = [], []
        for x in (a, b):
            scale = math.lcm(*{v.denominator for v in x.reshape(-1)})
            scaled = x if scale == 1 else x * scale
            whole.append(_objects(scaled, int))
            scales.append(scale)
        product = _integer_matmul(*whole)
        scale = scales[0] * scales[1]
        return product if scale == 1 else product * Fraction(1, scale)


def _nearest_float(q: Fraction | int) -> float:
    try:
        return q.numerator / q.denominator  # correctly rounded for integers of any size
    except OverflowError:
        return math.inf if q > 0 else -math.inf


@functools.cache
def _context(bits: int) -> Any:
    context = mpmath.MPContext()  # private: mpmath.mp belongs to the user
    context.prec = bits
    return context


@dataclass(frozen=True)
class Mp(Arithmetic):
    """mpmath floating point of a given precision, round to nearest even, unbounded exponents.

    Sums of products are exact and rounded once.
    """

    bits: int

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 1 << 16:
            raise ValueError(f"mp:{self.bits}: expected 2 to 65536 bits.")

    @property
    def name(self) -> str:
        return f"mp:{self.bits}"

    @property
    def context(self) -> Any:
        """mpmath context that the values belong to."""
        return _context(self.bits)

    def asarray(self, x: ArrayLike) -> Carrier:
        x = np.asarray(x)
        if x.dtype == object:
            return _objects(x, self._convert)
        return _objects(_numbers(x), self._convert)

    def _convert(self, v: Any) -> Any:
        if isinstance(v, Fraction):
            return self.constant(v)
        return +self.context.mpf(v)

    def constant(self, q: Fraction | int) -> Any:
        q = Fraction(q)
        return self.context.fdiv(q.numerator, q.denominator)

    def to_float64(self, y: Carrier) -> NDArray[np.float64]:
        def convert(v: Any) -> float:
            if not self.context.isfinite(v):
                return float(v)
            sign, man, exponent, _ = v._mpf_
            value = Fraction(int(man)) * Fraction(2) ** exponent
            return _nearest_float(-value if sign else value)

        return _objects(np.asarray(y, object), convert).astype(np.float64)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        exact = np.frompyfunc(
            lambda x, y, z: self.context.fadd(self.context.fmul(x, y, exact=True), z), 3, 1
        )
        return exact(a, b, c)

    def matmul(self, a: Carrier, b: Carrier) -> Carrier:
        def common(x: Carrier) -> tuple[Carrier, int]:
            exponent = min((v._mpf_[2] for v in x.reshape(-1)), default=0)
            whole = [
                (-1 if v._mpf_[0] else 1) * (int(v._mpf_[1]) << v._mpf_[2] - exponent)
                for v in x.reshape(-1)
            ]
            out = np.empty(x.shape, object)
            out.reshape(-1)[:] = whole
            return out, exponent

        if not all(self.context.isfinite(v) for x in (a, b) for v in x.reshape(-1)):
            zero = self.context.zero
            return np.matmul(a, b) if a.shape[-1] else np.matmul(a, b) + zero
        (left, p), (right, q) = common(a), common(b)
        product = _integer_matmul(left, right)
        return _objects(product, lambda v: self.context.ldexp(self.context.mpf(int(v)), p + q))


@dataclass(frozen=True)
class Float(Arithmetic):
    """Simulated floating point.

    storage: inputs are rounded to it. transform: format of add, sub, mul, fma and of constants.
    product: operands of a matrix product are rounded to it. accumulate: format of its sums, in the
    order that accumulation gives. fma: whether a multiplication and an addition round once.

    Accumulating in fp64 is NumPy's own matrix product, of unspecified order.
    """

    storage: Format
    transform: Format
    product: Format
    accumulate: Format
    accumulation: Accumulation
    fused: bool = True

    def __post_init__(self) -> None:
        wide = self.accumulate.precision == 53
        if wide != (self.accumulation.kind == "unspecified"):
            raise ValueError(
                f"{self.accumulation} accumulation in {self.accumulate.name}: fp64 sums are "
                "'unspecified' (NumPy's order), all others must state their order."
            )
        if not wide and self.product.precision > 26:
            raise ValueError(
                f"{self.product.name} products summed in {self.accumulate.name}: expected a "
                "product format of at most 26 bits, or accumulate=fp64."
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        """dtype of the carriers."""
        wide = max(self.storage.precision, self.transform.precision) > 24
        return np.dtype(np.float64 if wide else np.float32)

    @property
    def name(self) -> str:
        def differences(base: Float) -> list[str]:
            return [
                f"{f.name}={_field_text(getattr(self, f.name))}"
                for f in fields(self)
                if getattr(self, f.name) != getattr(base, f.name)
            ]

        base, changed = min(
            ((k, differences(v)) for k, v in PRESETS.items()), key=lambda item: len(item[1])
        )
        return ",".join([base, *changed])

    def asarray(self, x: ArrayLike) -> Carrier:
        x = _numbers(x)
        if self.storage.name == "fp32" and x.dtype != np.float64:
            with np.errstate(all="ignore"):
                return x.astype(np.float32).astype(self.dtype, copy=False)
        return self.storage.round(x.astype(np.float64, copy=False)).astype(self.dtype)

    def constant(self, q: Fraction | int) -> Any:
        return self.dtype.type(self.transform.round_fraction(q))

    def to_float64(self, y: Carrier) -> NDArray[np.float64]:
        return np.asarray(y).astype(np.float64)

    @property
    def _native(self) -> bool:
        return self.dtype == (np.float64 if self.transform.precision == 53 else np.float32) and (
            self.transform.precision in (24, 53)
        )

    def _operate(self, ufunc: Any, a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            if self._native:
                return ufunc(a, b)
            # Two p-bit operands, p <= 25: rounding first to 53 bits changes nothing
            # (Figueroa 1995)
            wide = ufunc(np.asarray(a, np.float64), np.asarray(b, np.float64))
            return self.transform.round(wide).astype(self.dtype)

    def add(self, a: Any, b: Any) -> Any:
        return self._operate(np.add, a, b)

    def sub(self, a: Any, b: Any) -> Any:
        return self._operate(np.subtract, a, b)

    def mul(self, a: Any, b: Any) -> Any:
        return self._operate(np.multiply, a, b)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        if not self.fused:
            return self.add(self.mul(a, b), c)
        a, b, c = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (a, b, c)))
        if self.transform.precision == 53:
            return fma64(a, b, c)
        with np.errstate(all="ignore"):
            return self.transform.round(sums.odd_add(a * b, c)).astype(self.dtype)

    def matmul(self, a: Carrier, b: Carrier) -> Carrier:
        a, b = (self.product.round(np.asarray(v, np.float64)) for v in (a, b))
        if self.accumulate.precision == 53:
            with np.errstate(all="ignore"):
                y = np.matmul(a, b)
        else:
            y = sums.matmul(a, b, self.accumulation, self.product, self.accumulate, self.fused)
        return self.transform.round(y).astype(self.dtype)


def fma64(
    a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64]
) -> NDArray[np.float64]:
    """a * b + c in FP64 with one rounding (Boldo & Melquiond 2008, figure 5).

    Where exponents leave the range in which the error-free transformations are exact, the sum is
    formed in Fractions.
    """
    with np.errstate(all="ignore"):
        high, low = _two_product(a, b)
        t = c + low
        t_error = sums.two_sum_error(c, low, t)
        v = high + t
        v_error = sums.two_sum_error(high, t, v)
        y = v + sums.odd_add(t_error, v_error)
        plain = a * b + c
        size = np.abs(a * b)
        safe = (size == 0) & ((a == 0) | (b == 0))
        safe |= (size > 2.0**-900) & (size < 2.0**990)
        safe &= (np.abs(a) < 2.0**990) & (np.abs(b) < 2.0**990)
        safe &= ((np.abs(c) > 2.0**-900) & (np.abs(c) < 2.0**990)) | (c == 0)
        y = np.where((high == 0) | (v == 0), plain, y) if y.size else y
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    y = np.atleast_1d(np.where(finite, y, plain))
    for i in zip(*np.nonzero(np.atleast_1d(finite & ~safe)), strict=True):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        y[i] = _nearest_float(exact) if exact else np.atleast_1d(plain)[i]
    return y.reshape(np.shape(plain))


def _two_product(
    a: NDArray[np.float64], b: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """a * b = high + low exactly (Dekker's product of Veltkamp's halves)."""

    def halves(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        t = x * 134217729.0  # 2**27 + 1
        top = t - (t - x)
        return top, x - top

    high = a * b
    (p, q), (r, s) = halves(a), halves(b)
    return high, ((p * r - high) + p * s + q * r) + q * s


def _preset(storage: str, product: str, accumulate: str, accumulation: str) -> Float:
    transform = "fp64" if storage == "fp64" else "fp32"
    return Float(
        FORMATS[storage], FORMATS[transform], FORMATS[product], FORMATS[accumulate],
        Accumulation.parse(accumulation),
    )  # fmt: skip


PRESETS = {
    "fp32": _preset("fp32", "fp32", "fp32", "sequential"),
    "fp64": _preset("fp64", "fp64", "fp64", "unspecified"),
    "tf32": _preset("fp32", "tf32", "fp32", "tensor_core:8:1:truncate"),
    "bf16": _preset("bf16", "bf16", "fp32", "tensor_core:8:1:truncate"),
    "fp16": _preset("fp16", "fp16", "fp32", "tensor_core:8:1:truncate"),
}
ACCEPTED = ["exact", "mp:BITS", *PRESETS]


def _field_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value.name if isinstance(value, Format) else str(value)


def _mixed(text: str) -> Float:
    name, *changes = text.split(",")
    if name not in PRESETS:
        raise ValueError(f"unknown arithmetic {name!r}: {nearest_name(name, ACCEPTED)}.")
    values = {f.name: getattr(PRESETS[name], f.name) for f in fields(Float)}
    for change in changes:
        key, _, value = change.partition("=")
        if key not in values:
            raise ValueError(f"unknown field {change!r}: {nearest_name(key, list(values))}.")
        if key == "accumulation":
            values[key] = Accumulation.parse(value)
        elif key == "fused":
            if value not in ("yes", "no"):
                raise ValueError(f"{change!r}: expected fused=yes or fused=no.")
            values[key] = value == "yes"
        else:
            values[key] = format_named(value)
    return Float(**values)


def arithmetic(spec: str | Arithmetic) -> Arithmetic:
    """The arithmetic that a text names.

    "exact"; "mp:200" (200 bits); "fp64", "fp32", "tf32", "bf16", "fp16"; or one of the last five
    with fields of Float changed: "fp32,storage=fp16" (the FP16 column of Lavin & Gray 2016,
    table 4: 16-bit data, 32-bit arithmetic), "fp32,accumulation=two_level:32",
    "fp32,fused=no". An Arithmetic is returned as it is. Raises ValueError, TypeError.
    """
    if isinstance(spec, Arithmetic):
        return spec
    if not isinstance(spec, str):
        raise TypeError(
            f"arithmetic of type {type(spec).__name__}: expected a text such as 'fp32' or an "
            "Arithmetic."
        )
    text = spec.replace(" ", "")
    if text == "exact":
        return Exact()
    if text.startswith("mp:"):
        if not text[3:].isdigit():
            raise ValueError(f"{spec!r}: expected 'mp:BITS' with an integer, such as 'mp:200'.")
        return Mp(int(text[3:]))
    return _mixed(text)
