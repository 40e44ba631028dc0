"""What predictions know of a tensor: moments of its elements, and their largest magnitude."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.ref.arithmetic.formats import FORMATS

Array = NDArray[np.float64]
CONSTANT = 1 / (8 * math.log(2))
PART = 1 << 20  # elements whose moments are summed at a time
# The axis of each operand that no sum runs along: images, filters, or channels.
OUTER = {"forward": (0, 0), "backward_data": (0, -1), "backward_filter": (-1, -1)}
# Largest magnitude of random data of which nothing else is known, in standard deviations: that of
# a million normal ones.
EXPECTED = 5.0
# What predictions need of the normal distribution. SciPy has the same functions, and takes 0.2 s to
# import, more than half of a process's first plan.
erf, erfc = (np.vectorize(f, otypes=[float]) for f in (math.erf, math.erfc))


def quantiles(chances: Iterable[float]) -> Array:
    """Where the standard normal distribution is below with each of these chances."""
    return np.array([*map(NormalDist().inv_cdf, chances)])


@dataclass(frozen=True)
class Moments:
    """What is known of the independent, identically distributed elements of a tensor.

    zeros: the part of elements that are 0. roundoff: variance of the relative error of rounding
    one, over u²; CONSTANT where significands are log-uniform, 1/7 for U[-1, 1] and U[0, 1].
    peak: the largest magnitude, 0 where it is not known.
    """

    mean: float
    variance: float
    zeros: float = 0.0
    roundoff: float = CONSTANT
    peak: float = 0.0

    @classmethod
    def of(cls, x: NDArray[Any]) -> Moments:
        """The moments of an array's elements; NaN where one is NaN or infinite, or where FP64 does
        not hold their squares. Raises ValueError for an array without elements."""
        if not np.asarray(x).size:
            raise ValueError("an array without elements has no moments; expected one or more")
        return cls.measured(x)

    @classmethod
    def measured(cls, x: NDArray[Any]) -> Moments:
        """The same; without elements those of zeros, whose results are right."""
        flat = np.asarray(x).reshape(-1)
        count = max(1, flat.size)
        total = square = zeros = binades = peak = 0.0
        for start in range(0, flat.size, PART):
            part = FORMATS["fp64"].nearest(flat[start : start + PART])
            if not np.isfinite(part).all():
                return cls(math.nan, math.nan)
            with np.errstate(all="ignore"):
                total += float(part.sum())
                square += float(part @ part)
                size = np.ldexp(1.0, np.frexp(part)[1] - 1) * (part != 0)
                binades += float(size @ size)
            zeros += np.count_nonzero(part == 0)
            peak = max(peak, float(np.abs(part).max()))
        if peak and not (square > 1e-300 and math.isfinite(square)):
            return cls(math.nan, math.nan)
        mean = total / count
        roundoff = binades / (3 * square) if square else CONSTANT
        variance = max(0.0, square / count - mean**2)
        return cls(mean, variance, zeros / count, roundoff, peak)

    @property
    def powers(self) -> Array:
        """Coefficients of ‖l‖² and of (Σ l)² in E[(l·x)²]."""
        return np.array([self.variance, self.mean**2])

    @property
    def largest(self) -> float:
        """No element is larger; infinity where nothing says so."""
        return self.peak or (math.inf if self.mean or self.variance else 0.0)

    @property
    def expected(self) -> float:
        """The largest magnitude that random data of these moments have, about."""
        return self.peak or abs(self.mean) + EXPECTED * math.sqrt(self.variance)


def alive(a: NDArray[Any], b: NDArray[Any], direction: str) -> list[NDArray[Any]]:
    """The operands without images, filters or channels of zeros alone, whose results are 0: the
    sums of the others have no fewer products for them."""
    left = []
    for v, axis in zip((a, b), OUTER[direction], strict=True):
        slices = np.moveaxis(v, axis, 0)
        some = slices.any(axis=tuple(range(1, slices.ndim)))
        left.append(slices[some] if some.any() and not some.all() else v)
    return left
