"""Binary floating-point formats and correct rounding to them.

Values of every format narrower than FP64 are held in float64 (or float32) arrays; a format is a
rounding function, not a storage type. Rounding is exact scaling by a power of two, one rounding
to an integer, and exact scaling back, so that it is correct for subnormals too.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
            raise ValueError(f"unknown rounding mode {mode!r}: expected one of {', '.join(MODES)}")
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

    def round_fraction(self, q: Fraction | int) -> float:
        """Round an exact number to nearest even, once."""
        q = Fraction(q)
        if q == 0:
            return 0.0
        size = abs(q)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        if Fraction(2) ** exponent > size:
            exponent -= 1
        spacing = Fraction(2) ** (max(exponent, self.emin) - self.precision + 1)
        rounded = round(q / spacing) * spacing  # Fraction's round is half to even
        if abs(rounded) > Fraction(self.max):
            return float(np.copysign(np.inf if self.infinities else np.nan, float(q > 0) - 0.5))
        return float(rounded)


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


def nearest_float(q: Fraction | int) -> float:
    """The FP64 number nearest to q, ties to even; infinity beyond the largest."""
    try:
        return q.numerator / q.denominator  # correctly rounded for integers of any size
    except OverflowError:
        return math.inf if q > 0 else -math.inf


def nearest_name(name: str, known: list[str]) -> str:
    """The end of an error message: the nearest known name, and all of them."""
    lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    hint = f"did you mean {lower[close[0]]!r}? " if close else ""
    return f"{hint}Accepted: {', '.join(known)}"


def format_named(name: str) -> Format:
    """The format of that name. Raises ValueError with the nearest one."""
    if name not in FORMATS:
        raise ValueError(f"unknown format {name!r}: {nearest_name(name, list(FORMATS))}.")
    return FORMATS[name]
