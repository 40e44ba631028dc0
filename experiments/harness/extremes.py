"""The maximum over a whole tensor, from a sample of it: peaks over a threshold.

The excesses of a sample over a high threshold follow a generalized Pareto distribution, whatever
the distribution of the errors (Pickands 1975). Its two parameters come from probability-weighted
moments (Hosking & Wallis 1987, Technometrics 29), its uncertainty from a bootstrap of the excesses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LEAST = 100  # excesses; below that the shape of the tail is anybody's guess
MOST = 2000


@dataclass(frozen=True)
class Tail:
    """P(value > threshold + t) = rate · (1 + shape·t/scale)^(−1/shape)."""

    threshold: float
    rate: float
    shape: Array
    scale: Array

    def quantile(self, exceedances: Array | float) -> Array:
        """The value that a tensor exceeds ``exceedances`` times, given rate × its size over it.

        ``exceedances`` is (expected number above the threshold) / (number above the value) ≥ 1.
        """
        ratio = np.log(np.maximum(exceedances, 1.0))
        shape = np.where(np.abs(self.shape) < SHAPE_ZERO, SHAPE_ZERO, self.shape)
        return self.threshold + self.scale * np.expm1(shape * ratio) / shape


# Below it (1 + shape·t/scale)^(−1/shape) is exp(−t/scale) to ten digits for every t that occurs.
SHAPE_ZERO = 1e-9


@dataclass(frozen=True)
class Maximum:
    """The median of the maximum over the whole population, and an interval that it lies in."""

    median: float
    low: float
    high: float
    shape: float


def maximum(
    sample: NDArray,
    population: int,
    *,
    confidence: float = 0.9,
    replicates: int = 2000,
    seed: int = 0,
) -> Maximum:
    """The largest of ``population`` values of which ``sample`` (1-D, ≥ 1000) is a random part.

    The interval holds the maximum of another tensor drawn alike: it contains both the chance of
    the maximum itself and the uncertainty of the fitted tail. Raises ValueError for a small sample
    or one larger than the population.
    """
    values = np.asarray(sample, np.float64).ravel()
    if values.size < 10 * LEAST or values.size > population:
        raise ValueError(
            f"{values.size} values of {population}; expected a sample of at least {10 * LEAST} "
            "and at most the population"
        )
    count = int(np.clip(values.size // 100, LEAST, MOST))
    largest = np.sort(np.partition(values, -count - 1)[-count - 1 :])  # all need not be sorted
    threshold = float(largest[0])
    excesses = largest[1:] - threshold
    rate = count / values.size
    rng = np.random.default_rng(seed)
    resampled = np.sort(rng.choice(excesses, (replicates, count)), axis=1)
    fitted = Tail(threshold, rate, *fit(excesses))
    boot = Tail(threshold, rate, *fit(resampled))
    expected = rate * population
    # The maximum of M values is exceeded by the next with probability E/M, E exponential.
    drawn = boot.quantile(expected / rng.exponential(size=replicates))
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    median = float(fitted.quantile(expected / np.log(2)))
    return Maximum(median, float(low), float(high), float(fitted.shape))


def fit(excesses: Array) -> tuple[Array, Array]:
    """Shape and scale of the generalized Pareto distribution of sorted excesses (..., k).

    a₀ = mean, a₁ = mean of (1 − F)·x: shape = 2 − a₀/(a₀ − 2a₁), scale = 2a₀a₁/(a₀ − 2a₁).
    """
    count = excesses.shape[-1]
    weights = np.arange(count - 1, -1, -1) / (count - 1)
    a0 = excesses.mean(axis=-1)
    a1 = (excesses * weights).mean(axis=-1)
    return 2 - a0 / (a0 - 2 * a1), 2 * a0 * a1 / (a0 - 2 * a1)
