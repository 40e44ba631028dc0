"""How far the largest of many errors lies above their root mean square.

Given the data, an output's error is the sum of many small independent ones: normal, of variance
s² G. G, of mean 1, is what differs from output to output, for two reasons.

- **Energy.** s² G is proportional to S = Σ_k Σ_i a_i u_ik² v_ik² (componentwise), a sum over the
  channels k and the states i of a tile, with a_i = (AT_oi)². For transforms of independent numbers
  of variance σ² and excess kurtosis e, with M = σ² G Gᵀ + mean² (G 1)(G 1)ᵀ,
  E[u_i² u_j²] ≤ M_ii M_jj + 2 M_ij² + e σ⁴ Σ_a G_ia² G_ja², so that the variance of S is known.
- **Sums.** A sum in order rounds in proportion to its partial sums: s² G is the mean square of a
  random walk B on its way, ∫ B², whose relative variance is 4/3; what AT rounds is in proportion to
  whole sums, whose squares' is 2. Of Σ_i of correlated ones it is so many times Σ_ij p_i p_j R_ij²,
  p their shares, R their correlation. Both count by the share that they have in the error.

G is taken as gamma-distributed with the sum of both variances: the tail of ∫ B², exp(−0.617 G), is
that of the gamma distribution of its variance within a fifth. Of N outputs each exceeds t with
P(|e| > t) = E erfc(t / (s √(2 G))), and none with a chance of 1 − N P at least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Problem
from winolab.ref.arithmetic.simulated import Arithmetic
from winolab.ref.error.moments import Moments
from winolab.ref.kinds.registry import ENGINES
from winolab.ref.tolerance.normwise import products

WALK, WHOLE = 4 / 3, 2.0  # relative variance of a random walk's mean square, of a sum's square
NODES = 4096  # quantiles of G
MOST_STATES = 1024  # of a nested tile, whose states are told apart; of more, all vary as one


def spread(
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
    data: tuple[Moments, Moments],
    kurtosis: tuple[float, float],
    shares: Mapping[str, float],
    energy: bool = True,
) -> float:
    """Relative variance of G; the largest of an algorithm's tiles.

    ``kurtosis`` are those of the data, 3 of normal ones; ``shares`` are those of s² by source, as
    predictions have them, all the accumulation's where there are none; ``energy``: the data may be
    any, otherwise s² knows them.
    """
    own = math.sqrt(WALK) * shares.get("accumulation", 0.0 if shares else 1.0)
    sums = (own + math.sqrt(WHOLE) * shares.get("output transform", 0.0)) ** 2
    worst, known = 0.0, False
    for programs, depth in ENGINES[algorithm.kind].states(problem, algorithm, run, direction):
        known = True
        exact = [[np.array(m.exact(), float) for m in (p.AT, p.G, p.BT)] for p in programs]
        at, g, bt = (reduce(np.kron, m) for m in zip(*exact, strict=True))
        if len(g) > MOST_STATES:
            return float(energy) * (kurtosis[0] * kurtosis[1] - 1) / depth + sums
        (m_x, x), (m_w, w) = (
            _pairs(m, of, k) for m, of, k in zip((bt, g), data, kurtosis, strict=True)
        )
        weights = at**2
        mean = weights @ (np.diag(m_x) * np.diag(m_w))
        square = (weights @ (x * w) * weights).sum(axis=1)
        met = (weights @ (m_x * m_w) ** 2 * weights).sum(axis=1)
        with np.errstate(all="ignore"):
            found = float(energy) * (square / mean**2 - 1) / depth
            found = np.nan_to_num(found + sums * met / mean**2)
        worst = max(worst, float(found.max()))
    if not known:
        count = max(1, products(problem, direction))
        return float(energy) * (kurtosis[0] * kurtosis[1] - 1) / count + sums
    return worst


def _pairs(
    matrix: NDArray[np.float64], data: Moments, kurtosis: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """M and E[u_i² u_j²] of transforms of such numbers."""
    sums = matrix.sum(axis=1)
    m = data.variance * matrix @ matrix.T + data.mean**2 * np.outer(sums, sums)
    squares = matrix**2
    fourth = (kurtosis - 3) * data.variance**2 * squares @ squares.T
    return m, np.maximum(np.outer(np.diag(m), np.diag(m)) + 2 * m**2 + fourth, m**2)


@lru_cache(maxsize=1024)
def above(count: int, confidence: float, variance: float) -> float:
    """t / s that none of ``count`` errors exceeds with that confidence; G has that variance."""
    from scipy.special import erfc, gammainccinv, ndtri

    chance = (1 - confidence) / max(1, count)
    if variance < 1e-6:
        return float(-ndtri(chance / 2))
    shape = 1 / variance
    # quantiles of G, ever denser towards its largest values, on which the chance hangs
    tails = np.append(np.linspace(1, 1e-3, NODES), np.geomspace(1e-3, chance * 1e-6, NODES)[1:])
    values, weights = gammainccinv(shape, tails) / shape, -np.diff(tails)

    def exceeds(t: float) -> float:
        with np.errstate(all="ignore"):
            each = erfc(t / np.sqrt(2 * np.maximum(values, 1e-300)))
        return float((weights * (each[1:] + each[:-1]) / 2).sum() + tails[-1])

    low, high = 0.0, 1.0
    while exceeds(high) > chance:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) > chance else (low, middle)
    return high
