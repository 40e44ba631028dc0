"""Error-free transformations: sums and products in FP64 with their exact errors."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from winolab.ref.arithmetic.formats import nearest_float

Array = NDArray[np.float64]
CHUNK = 1 << 12  # elements whose dozen temporaries stay in L2


def two_sum_error(a: Array, b: Array, s: Array) -> Array:
    """Exact error of s = a + b rounded to nearest (Knuth's TwoSum); NaN where not finite."""
    t = s - a
    return (a - (s - t)) + (b - t)


def odd_add(a: Array, b: Array) -> Array:
    """a + b rounded to odd in float64: an inexact sum has its last bit set.

    A value rounded to odd with at least two bits more than a format has rounds to that format as
    the exact sum does (Boldo & Melquiond 2008, theorem 3).
    """
    with np.errstate(all="ignore"):
        s = np.asarray(a + b)
        error = two_sum_error(a, b, s)
        bits = s.view(np.int64)
        even = np.isfinite(error) & (error != 0) & (bits & 1 == 0)
        # one step away from zero adds 1 to the bits; an inexact sum is not zero
        step = np.where((error > 0) == (s > 0), 1, -1)
        return (bits + step * even).view(np.float64)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in FP64 with one rounding, for arrays of one shape.

    Boldo & Melquiond 2008, figure 5. Where exponents leave the range in which the error-free
    transformations are exact, the sum is formed in Fractions.
    """
    out = np.empty(a.shape)
    flat = out.reshape(-1)
    a, b, c = a.reshape(-1), b.reshape(-1), c.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, CHUNK):
            part = slice(start, start + CHUNK)
            flat[part] = _fma64(a[part], b[part], c[part])
    return out


def _fma64(a: Array, b: Array, c: Array) -> Array:
    high, low = _two_product(a, b)
    t = c + low
    v = high + t
    y = v + odd_add(two_sum_error(c, low, t), two_sum_error(high, t, v))
    size = np.abs(high)
    safe = (size > 2.0**-960) & (size < 2.0**990)
    safe &= np.maximum(np.maximum(np.abs(a), np.abs(b)), np.abs(c)) < 2.0**990
    safe &= y != 0
    if safe.all():
        return y
    # IEEE's specials, signs of zero, and extreme exponents
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    plain = np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, a * b + c)
    y = np.where(safe, y, plain)
    for i in np.flatnonzero(finite & ~safe & (a != 0) & (b != 0)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        if exact:
            y[i] = math.copysign(nearest_float(exact), -1 if exact < 0 else 1)
    return y


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b = high + low exactly (Dekker's product of Veltkamp's halves)."""

    def halves(x: Array) -> tuple[Array, Array]:
        t = x * 134217729.0  # 2**27 + 1
        top = t - (t - x)
        return top, x - top

    high = a * b
    (p, q), (r, s) = halves(a), halves(b)
    return high, ((p * r - high) + p * s + q * r) + q * s
