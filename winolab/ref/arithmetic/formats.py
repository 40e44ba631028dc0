"""Binary floating-point formats and correct rounding to them.

Values of every format narrower than FP64 are held in float64 (or float32) arrays; a format is a
rounding function, not a storage type. Rounding is exact scaling by a power of two, one rounding
to an integer, and exact scaling back, so that it is correct for subnormals too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from winolab.arguments.arrays import PRECISION_OF_DTYPE
from winolab.arguments.values import nearest
from winolab.ref.arithmetic.elements import INTEGERS, number, reals

EXPONENT_BITS = np.int64(0x7FF0_0000_0000_0000)
MODES = ("nearest", "truncate")


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    precision counts the significand's bits with the hidden one; emin and emax are the exponents of
    the smallest and largest normal numbers (1 <= significand < 2). A format without infinities
    (fp8_e4m3) has NaN in the place of the largest significand, and overflows to it.
    """

    name: str
    precision: int
    emin: int
    emax: int
    infinities: bool = True

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest a normal number, 2**-precision."""
        return 2.0**-self.precision

    @property
    def max(self) -> float:
        """Largest finite number."""
        significand = 2 - 2.0 ** (1 - self.precision)
        if not self.infinities:
            significand -= 2.0 ** (1 - self.precision)
        return significand * 2.0**self.emax

    @property
    def smallest_subnormal(self) -> float:
        """Smallest positive number, the spacing of all numbers below 2**emin."""
        return 2.0 ** (self.emin - self.precision + 1)

    @property
    def underflow(self) -> float:
        """Largest error of rounding to nearest below 2**emin: half the spacing there, or for FP64
        all of it, which has no half in FP64."""
        return max(self.smallest_subnormal / 2, 2.0**-1074)

    def round(self, x: ArrayLike, mode: str = "nearest") -> NDArray[np.float64]:
        """Round float64 values to this format.

        mode "nearest" is round to nearest, ties to even: overflow gives infinity. "truncate" is
        IEEE 754's roundTowardZero: overflow gives the largest finite number. NaN and infinity
        stay, zeros keep their sign.
        """
        if mode not in MODES:
            raise ValueError(f"unknown rounding mode {mode!r}; expected one of {', '.join(MODES)}")
        given = np.asarray(x, np.float64)
        if self.precision == 53:
            return given
        x = np.atleast_1d(given)
        # 2**floor(log2 |x|), kept within the exponents that have a spacing of their own
        binade = (x.view(np.int64) & EXPONENT_BITS).view(np.float64)
        spacing = np.clip(binade, 2.0**self.emin, 2.0 ** (self.emax + 1))
        spacing *= 2.0 ** (1 - self.precision)
        with np.errstate(all="ignore"):
            y = x / spacing
            y = np.rint(y, out=y) if mode == "nearest" else np.trunc(y, out=y)
            y *= spacing
        over = (np.abs(y) > self.max) & np.isfinite(x)
        if over.any():
            y[over] = np.copysign(np.inf if mode == "nearest" else self.max, x[over])
        if not self.infinities:
            y[np.isinf(y)] = np.nan
        return y.reshape(given.shape)

    def nearest(self, x: ArrayLike) -> NDArray[np.float64]:
        """Real numbers of any type rounded to nearest even, once.

        Object arrays may hold whatever `winolab.ref.arithmetic.elements.number` knows; overflow is
        that of `round`. Raises TypeError for what are no real numbers.
        """
        x = reals(x)
        if x.dtype == object:
            return self._elements(x.reshape(-1).tolist()).reshape(x.shape)
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64, copy=False)
            if self.precision == 53:
                return wide
            if x.dtype in INTEGERS and x.dtype.itemsize == 8:
                inexact = np.abs(wide) >= 2.0**53
            elif x.dtype == np.longdouble:
                inexact = (wide != x) & ~np.isnan(wide)
            else:
                return self.round(wide)
        y = self.round(wide)
        if inexact.any():
            y = np.where(inexact, 0, y)
            y[inexact] = self._elements(x[inexact].tolist())
        return y

    def _elements(self, values: list[Any]) -> NDArray[np.float64]:
        exact = map(number, values)
        return np.array(
            [v if isinstance(v, float) else self.round_fraction(v) for v in exact], float
        )

    def round_fraction(
        self, q: Fraction | int, ldexp: Callable[[int, int], Any] = math.ldexp
    ) -> Any:
        """Round an exact number to nearest even, once; ``ldexp`` makes m · 2^e a number."""
        if self.name == "fp64":
            return nearest_float(q)
        size, unit = abs(q.numerator), q.denominator
        exponent = size.bit_length() - unit.bit_length()
        if size << max(0, -exponent) < unit << max(0, exponent):
            exponent -= 1  # now ⌊log2 |q|⌋
        spacing = max(exponent, self.emin) - self.precision + 1
        unit <<= max(0, spacing)
        whole, rest = divmod(size << max(0, -spacing), unit)
        whole += 2 * rest > unit or (2 * rest == unit and whole % 2)
        top = (1 << self.precision) - (1 if self.infinities else 2)
        beyond = spacing - (self.emax - self.precision + 1)
        sign = -1 if q < 0 else 1
        if whole << max(0, beyond) > top << max(0, -beyond):
            return sign * math.inf if self.infinities else math.nan
        return ldexp(sign * whole, spacing) if whole else sign * 0.0


FORMATS = {
    f.name: f
    for f in (
        Format("fp64", 53, -1022, 1023),
        Format("fp32", 24, -126, 127),
        Format("tf32", 11, -126, 127),
        Format("bf16", 8, -126, 127),
        Format("fp16", 11, -14, 15),
        Format("fp8_e5m2", 3, -14, 15),
        Format("fp8_e4m3", 4, -6, 8, infinities=False),
    )
}

LONGDOUBLE = Format(  # no format of arithmetics: what results are rounded to
    "longdouble",
    int(np.finfo(np.longdouble).nmant) + 1,
    int(np.finfo(np.longdouble).minexp),
    int(np.finfo(np.longdouble).maxexp) - 1,
)
# dtype -> the format of its elements
FORMAT_OF: dict[np.dtype[Any], Format] = {
    np.dtype(np.float64): FORMATS["fp64"],
    np.dtype(np.float32): FORMATS["fp32"],
    np.dtype(np.float16): FORMATS["fp16"],
    np.dtype(ml_dtypes.bfloat16): FORMATS["bf16"],
    np.dtype(ml_dtypes.float8_e5m2): FORMATS["fp8_e5m2"],
    np.dtype(ml_dtypes.float8_e4m3fn): FORMATS["fp8_e4m3"],
    np.dtype(np.longdouble): LONGDOUBLE,
}


def nearest_float(q: Fraction | int) -> float:
    """The FP64 number nearest to q, ties to even; infinity beyond the largest."""
    try:
        return q.numerator / q.denominator  # correctly rounded for integers of any size
    except OverflowError:
        return math.inf if q > 0 else -math.inf


def nearest_name(name: str, known: list[str]) -> str:
    """The end of an error message: all known names, and the nearest one."""
    near = nearest(name, known)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"; expected one of {', '.join(known)}{hint}"


def format_named(name: str) -> Format:
    """The format of that name, or of that dtype's. Raises ValueError with the nearest one."""
    name = PRECISION_OF_DTYPE.get(name, name)
    if name not in FORMATS:
        raise ValueError(f"unknown format {name!r}{nearest_name(name, list(FORMATS))}")
    return FORMATS[name]
