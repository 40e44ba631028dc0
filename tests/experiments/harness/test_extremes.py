"""Extrapolated maxima against distributions whose maxima are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from experiments.harness.extremes import fit, maximum

POPULATION = 3_000_000
DISTRIBUTIONS = {
    "normal": stats.halfnorm(),
    "exponential": stats.expon(),
    "bounded": stats.uniform(),
    "product of normals": None,
}


def true_quantile(name: str, p: float) -> float:
    distribution = DISTRIBUTIONS[name]
    if distribution is not None:
        return float(distribution.ppf(p))
    # P(|XY| > t) = 2·E[sf(t/|X|)] of standard normals, by quadrature over |X|
    x = np.linspace(1e-3, 9, 4001)
    weight = 2 * stats.norm.pdf(x) * (x[1] - x[0])
    low, high = 0.0, 60.0
    for _ in range(40):
        t = (low + high) / 2
        tail = float(np.sum(2 * stats.norm.sf(t / x) * weight))
        low, high = (t, high) if tail > 1 - p else (low, t)
    return (low + high) / 2


def draw(name: str, rng: np.random.Generator, size: int) -> np.ndarray:
    distribution = DISTRIBUTIONS[name]
    if distribution is None:
        return np.abs(rng.standard_normal(size) * rng.standard_normal(size))
    return distribution.rvs(size, random_state=rng)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_median_of_the_maximum_is_found(name: str) -> None:
    """From a sample of 1/30; the exact median is the 2^(−1/M) quantile."""
    exact = true_quantile(name, 0.5 ** (1 / POPULATION))
    estimates = [
        maximum(draw(name, np.random.default_rng(s), 100_000), POPULATION, seed=s).median
        for s in range(8)
    ]
    assert abs(np.mean(estimates) / exact - 1) <= 0.08


@pytest.mark.parametrize("name", ["exponential", "product of normals"])
def test_the_interval_covers_the_maximum(name: str) -> None:
    """A 90 % interval holds at least 47 of 60 maxima of other tensors (binomial, 99.5 %)."""
    rng = np.random.default_rng(7)
    distribution_of_max = rng.random(60) ** (1 / POPULATION)
    held = 0
    for s, p in enumerate(distribution_of_max):
        found = maximum(draw(name, np.random.default_rng(s), 50_000), POPULATION, replicates=300)
        assert found.low < found.median < found.high
        held += found.low <= true_quantile(name, p) <= found.high
    assert held >= 47


def test_the_fit_finds_shape_and_scale() -> None:
    rng = np.random.default_rng(3)
    for shape in (-0.3, 0.0, 0.2):
        excesses = np.sort(stats.genpareto(shape, scale=2).rvs(40_000, random_state=rng))
        found_shape, found_scale = fit(excesses)
        # standard errors are about 1/√40000 times a few
        assert abs(found_shape - shape) <= 0.04
        assert abs(found_scale / 2 - 1) <= 0.04


def test_a_small_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="999 values of 10000; expected a sample of at least 1000"):
        maximum(np.ones(999), 10_000)
    with pytest.raises(ValueError, match="at most the population"):
        maximum(np.ones(2000), 1000)
