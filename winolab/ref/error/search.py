"""Search for interpolation points: by noise gain first, then by simulated FP32 runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isnan
from numbers import Real

import numpy as np

from winolab.algorithm import Gamma, Problem, Tile
from winolab.arguments.values import whole
from winolab.ref.algebra.points import INFINITY, Point, named_points, show
from winolab.ref.algebra.transforms import Programs, transforms
from winolab.ref.algorithms import convolution
from winolab.ref.algorithms.winograd import compute, regions
from winolab.ref.arithmetic.simulated import arithmetic

# Magnitudes that a search draws from: fractions of small integers up to 8. Larger ones lose at once
# (the noise gain grows with the powers of the largest point and of the reciprocal smallest).
POOL = sorted({Fraction(a, b) for b in (1, 2, 3, 4, 5, 8) for a in range(1, 8 * b + 1) if a < 16})
# Rows of that many tiles, one a seed, over as many channels and filters.
SEEDS, TILES, CHANNELS, FILTERS = 10, 4, 64, 16
# Leaders by noise gain that are simulated; a run takes some 10 ms.
SIMULATED = 24


@dataclass(frozen=True)
class Scored:
    """A set of points and what it costs in accuracy; smaller is better.

    ``gain`` is the noise gain, ``zero_mean`` the relative RMS error on U[−1, 1] and ``positive``
    the mean relative error on U[1, 2], both of F(n, r) on rows over 64 channels, simulated in
    FP32, mean of 10 seeds.
    """

    points: tuple[Point, ...]
    tile: Tile
    gain: float
    zero_mean: float
    positive: float

    @property
    def score(self) -> float:
        """Geometric mean of the two errors."""
        return (self.zero_mean * self.positive) ** 0.5

    def __str__(self) -> str:
        return ",".join(map(show, self.points))


def best_points(
    alpha: int, r: int | None = None, *, budget: float = 10.0, seed: int = 0
) -> list[Scored]:
    """The best sets of ``alpha`` points that ``budget`` seconds of search find, best first.

    Without ``r`` the noise gain is averaged over the filter widths 2 to 9 that fit, and the
    simulation takes the tile with the largest n·r. Half of the budget goes to a local
    search over symmetric sets from random starts, the other half to simulating its leaders; the
    named sets always compete, and sets whose errors are not numbers come last. The same seed visits
    the same sets, as far as the time allows.

    Raises ValueError for alpha or r out of range, TypeError where they are no integers.

    >>> best_points(6, 3, budget=0.1)[0].tile
    Tile(n=4, r=3)
    """
    alpha = whole(alpha, "alpha")
    r = None if r is None else whole(r, "r")
    seed = whole(seed, "seed")
    if not isinstance(budget, Real):
        raise TypeError(f"budget is {budget!r}; expected seconds")
    if not budget >= 0:
        raise ValueError(f"budget is {budget} seconds; expected 0 or more")
    tiles = _tiles(alpha, r)
    started = time.perf_counter()
    seen: dict[tuple[Point, ...], float] = {}
    named = [named_points(name, alpha, r) for name in ("best", "paper", "wincnn")]
    for points in dict.fromkeys([*named, named_points("best", alpha)]):
        seen[points] = noise_gains([points], tiles)[0]
    rng = np.random.default_rng(seed)
    while alpha > 2 and time.perf_counter() - started < budget / 2:
        for points, gain in _descent(alpha, tiles, rng):
            seen[points] = gain
            if time.perf_counter() - started > budget / 2:
                break
    ranked = sorted(seen, key=lambda points: seen[points])
    simulated = max(tiles, key=lambda tile: tile.n * tile.r)
    leaders = []
    for points in dict.fromkeys([*named, *ranked[:SIMULATED]]):
        leaders.append(score(points, simulated))
        if time.perf_counter() - started > budget and len(leaders) > len(named):
            break
    return sorted(leaders, key=lambda scored: (isnan(scored.score), scored.score))


def score(points: tuple[Point, ...], tile: Tile) -> Scored:
    """Noise gain and simulated errors of F(n, r) at these points."""
    gain = noise_gains([points], [tile])[0]
    return Scored(points, tile, gain, *simulate(transforms(tile.n, tile.r, points).programs, tile))


def noise_gains(sets: list[tuple[Point, ...]], tiles: list[Tile]) -> np.ndarray:
    """Noise gain of each set of points (all of one size), geometric mean over the tiles.

    (1/(n r)) Σ_i ‖AT_i‖² ‖G_i‖² ‖BT_i‖² over the states, from the points alone: the norms are sums
    of powers of the points, and the polynomials ∏(x − p) without one factor.
    """
    infinite = INFINITY in sets[0]
    p = np.array([[float(q) for q in points if q != INFINITY] for points in sets])
    count = p.shape[1]
    full = np.ones((len(p), 1))
    for i in range(count):
        full = np.pad(full, [(0, 0), (1, 0)]) - p[:, i, None] * np.pad(full, [(0, 0), (0, 1)])
    rows = np.zeros((len(p), count, count))
    carry = np.zeros((len(p), count))
    for k in range(count, 0, -1):
        carry = full[:, k, None] + p * carry
        rows[:, :, k - 1] = carry
    differences = p[:, :, None] - p[:, None, :] + np.eye(count)
    weights = differences.prod(axis=2) ** 2
    norms = (rows**2).sum(axis=2) / weights
    logs = np.zeros(len(p))
    for tile in tiles:
        powers = p[:, :, None] ** (2 * np.arange(max(tile.n, tile.r)))
        states = powers[:, :, : tile.n].sum(axis=2) * powers[:, :, : tile.r].sum(axis=2) * norms
        total = states.sum(axis=1) + (infinite * (full**2).sum(axis=1))
        logs += np.log(total / (tile.n * tile.r))
    return np.exp(logs / len(tiles))


def _tiles(alpha: int, r: int | None) -> list[Tile]:
    if r is not None:
        if not 1 <= r <= alpha:
            raise ValueError(f"r = {r} has no tile of alpha = {alpha}; expected 1 to {alpha}")
        return [Tile(alpha - r + 1, r)]
    Tile(alpha, 1)
    middle = (alpha + 1) // 2
    widths = [width for width in range(2, 10) if width < alpha] or [middle]
    return sorted((Tile(alpha - width + 1, width) for width in widths), reverse=True)


def _descent(
    alpha: int, tiles: list[Tile], rng: np.random.Generator
) -> Iterator[tuple[tuple[Point, ...], float]]:
    """From a random symmetric set, the best replacement of one magnitude, until none is better."""
    zero, pairs = _shape(alpha, rng)
    lone = alpha - 1 - zero - 2 * pairs
    state = list(rng.choice(len(POOL), pairs + lone, replace=False))
    best = np.inf
    while True:
        moves = [
            [*state[:i], j, *state[i + 1 :]]
            for i in range(len(state))
            for j in range(len(POOL))
            if j not in state
        ]
        sets = [_points(zero, pairs, move) for move in moves]
        gains = noise_gains(sets, tiles)
        first = int(np.argmin(gains))
        if not gains[first] < best:
            return
        best, state = gains[first], moves[first]
        for i in np.argsort(gains)[:SIMULATED]:
            yield sets[i], float(gains[i])


def _shape(alpha: int, rng: np.random.Generator) -> tuple[int, int]:
    """With zero or without, and how many ± pairs, beside infinity; what is left is one point."""
    finite = alpha - 1
    zero = 1 if finite % 2 else int(rng.integers(0, 2))
    return zero, (finite - zero) // 2


def _points(zero: int, pairs: int, state: list[int]) -> tuple[Point, ...]:
    magnitudes = [POOL[i] for i in state]
    finite = [Fraction(0)] * zero
    for p in sorted(magnitudes[:pairs]):
        finite += [p, -p]
    return (*finite, *magnitudes[pairs:], INFINITY)


def simulate(programs: Programs, tile: Tile) -> tuple[float, float]:
    """Relative RMS error on U[−1, 1] and mean relative error on U[1, 2], in FP32."""
    gamma = Gamma((tile,))
    errors = []
    for low, high in ((-1.0, 1.0), (1.0, 2.0)):
        x, w, problem, exact = _rows(tile, low, high)
        boxes = regions(problem, gamma)
        errors.append(compute(x, w, problem, boxes, lambda _: programs, arithmetic("fp32")) - exact)
    (_, _, _, signed), (_, _, _, positive) = _rows(tile, -1.0, 1.0), _rows(tile, 1.0, 2.0)
    per_seed = (errors[0] ** 2).mean(axis=(1, 2)) / (signed**2).mean(axis=(1, 2))
    return float(np.sqrt(per_seed).mean()), float(np.abs(errors[1] / positive).mean())


@lru_cache(maxsize=8)
def _rows(
    tile: Tile, low: float, high: float
) -> tuple[np.ndarray, np.ndarray, Problem, np.ndarray]:
    """A row a seed of TILES tiles over CHANNELS channels, filters, and the exact outputs."""
    rng = np.random.default_rng(0)
    width = TILES * tile.n + tile.r - 1
    x = rng.uniform(low, high, (SEEDS, width, CHANNELS)).astype(np.float32)
    w = rng.uniform(low, high, (FILTERS, tile.r, CHANNELS)).astype(np.float32)
    problem = Problem.of(x.shape, w.shape)
    return x, w, problem, convolution.forward(x, w, problem)
