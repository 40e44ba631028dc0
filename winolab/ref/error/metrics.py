"""Errors against an oracle: metrics, noise gain, and beside them the bound and the prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from winolab.algorithm import Algorithm, Direct, Problem, Tile, parse_algorithm, tiled
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.bounds import bound
from winolab.ref.error.predict import Moments, Prediction, predict
from winolab.ref.error.roundings import matrix_of

__all__ = [
    "QUANTILES",
    "Comparison",
    "Moments",
    "Prediction",
    "bound",
    "compare",
    "noise_gain",
    "predict",
]

# Levels at which the distribution of |error| / |exact| is reported.
QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)


@dataclass(frozen=True)
class Comparison:
    """Errors e = y − ref over all elements; every field is NaN where y or ref is NaN somewhere.

    mare: mean of |e| / |ref|, the MARE of Im2col-Winograd (section 6.2.1); an element with e = 0
        counts 0, one with ref = 0 and e ≠ 0 infinity.
    max_relative: largest |e| / |ref|.
    relative_rms: root of Σe² / Σref².
    max_abs: largest |e|, the maximum element error of Lavin & Gray (table 4).
    mse: mean of e². bias: mean of e. relative_bias: Σe / Σ|ref|.
    quantiles: |e| / |ref| at the levels QUANTILES.
    worst_ratio: largest |e| / bound, at most 1 where the bound holds; NaN without a bound. An
        infinite element is no bound: it counts 0, and `unbounded` says how many there are.
    count: number of elements.
    """

    mare: float
    max_relative: float
    relative_rms: float
    max_abs: float
    mse: float
    bias: float
    relative_bias: float
    quantiles: tuple[float, ...]
    worst_ratio: float
    unbounded: int
    count: int

    def row(self) -> dict[str, float]:
        """The metrics as flat columns of a table; quantiles as q50, q99.9, …"""
        columns = dict(vars(self))
        levels = columns.pop("quantiles")
        columns.update((f"q{100 * q:g}", v) for q, v in zip(QUANTILES, levels, strict=True))
        return columns


def compare(
    y: ArrayLike,
    oracle: ArrayLike,
    bound: ArrayLike | None = None,
    error: ArrayLike | None = None,
) -> Comparison:
    """Metrics of y against the oracle's values, of one shape; bound broadcasts to it.

    ``error`` is y − oracle where FP64 does not hold y or the oracle closely enough to tell it.
    Nothing is hidden: NaN in y or the oracle makes every metric NaN, and so does infinity in both
    of one sign (their difference); infinity in y where the oracle is finite is an infinite error.
    An empty array has error 0.

    Raises ValueError where the shapes differ or a bound is negative.
    """
    y, ref = (FORMATS["fp64"].nearest(v) for v in (y, oracle))
    if y.shape != ref.shape:
        raise ValueError(f"the result has shape {y.shape}; expected {ref.shape}, the oracle's")
    if error is not None and np.shape(error) != y.shape:
        raise ValueError(
            f"the errors have shape {np.shape(error)}; expected {y.shape}, the result's"
        )
    limit = None
    if bound is not None:
        limit = np.broadcast_to(np.asarray(bound, np.float64), y.shape)
        if (limit < 0).any():
            raise ValueError("the bound has negative elements; expected |error| ≤ bound")
    if y.size == 0:
        zeros = (0.0,) * len(QUANTILES)
        return Comparison(0, 0, 0, 0, 0, 0, 0, zeros, math.nan if limit is None else 0.0, 0, 0)
    with np.errstate(all="ignore"):
        error = y - ref if error is None else np.asarray(error, np.float64)
        size = np.abs(error)
        relative = _ratio(size, np.abs(ref))
        return Comparison(
            mare=float(relative.mean()),
            max_relative=float(relative.max()),
            relative_rms=_relative_rms(error, ref),
            max_abs=float(size.max()),
            mse=float((error**2).mean()),
            bias=float(error.mean()),
            relative_bias=float(_ratio(error.sum(), np.abs(ref).sum())),
            quantiles=_quantiles(relative),
            worst_ratio=math.nan if limit is None else float(_ratio(size, limit).max()),
            unbounded=0 if limit is None else int(np.isinf(limit).sum()),
            count=y.size,
        )


def _relative_rms(error: NDArray[np.float64], ref: NDArray[np.float64]) -> float:
    """√(Σe² / Σref²); both as multiples of powers of two, as FP64 does not hold all squares."""
    (e, of_e), (r, of_r) = map(_normalised, (error, ref))
    return float(np.ldexp(np.sqrt(_ratio((e**2).sum(), (r**2).sum())), of_e - of_r))


def _normalised(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """x by the power of two above its largest magnitude, and that one's exponent."""
    largest = np.abs(x).max()
    exponent = int(np.frexp(largest)[1]) if np.isfinite(largest) else 0
    return np.ldexp(np.ldexp(x, -(exponent // 2)), -(exponent - exponent // 2)), exponent


def _ratio(a: Any, b: Any) -> NDArray[np.float64]:
    """a / b with 0/0 = 0, x/0 = inf; NaN stays."""
    found = np.zeros(np.broadcast(a, b).shape)
    return np.divide(a, b, out=found, where=(np.asarray(a) != 0) | np.isnan(b))


def _quantiles(relative: NDArray[np.float64]) -> tuple[float, ...]:
    if np.isnan(relative).any():
        return (math.nan,) * len(QUANTILES)
    # an order statistic, not an interpolation: infinite errors stay what they are
    values = np.quantile(relative, QUANTILES, method="inverted_cdf")
    return tuple(float(v) for v in values)


def noise_gain(algorithm: str | Algorithm) -> float:
    """How much the algorithm amplifies the rounding noise of its sums, in variance.

    (1/(n r)) Σ_o Σ_i (AT_oi)² ‖G_i‖² ‖BT_i‖² for each dimension, multiplied over dimensions; 1 for
    direct summation. On zero-mean data the relative RMS error of sequential sums of K products is
    about 0.30 u √(K · gain): 0.30 = √(0.180 / 2), see winolab.ref.error.predict. Scaling the rows
    of G and BT against AT leaves it unchanged.

    Raises ValueError for an algorithm that has no tiles of its own: winrs and fft.
    """
    algorithm = parse_algorithm(algorithm)
    if not (algorithm.tiles or isinstance(algorithm, Direct)):
        raise ValueError(
            f"{algorithm} has no tiles of its own, whose noise it gains; name one that has, such "
            "as gamma:8:6:3 or omega:8:3:6"
        )
    gain = 1.0
    for tile in algorithm.tiles:
        at, g, bt = (np.array(matrix_of(algorithm, tile, m), float) for m in ("AT", "G", "BT"))
        states = (at**2).sum(axis=0) * (g**2).sum(axis=1) * (bt**2).sum(axis=1)
        gain *= float(states.sum()) / (tile.n * tile.r)
    return gain


# A kernel that the planners may choose unasked loses at most this many times direct's error.
ADMISSIBLE = 10.0
# The same of tiles on operands of 16 bits: with the rounding of results to 16 bits the error is
# four times direct's, as the tolerance "direct:4" has it.
ADMISSIBLE_IN_16_BITS = 2.2


# Summed in the case that stands for all: 64 channels of three taps, as in the first layers.
CHANNELS, NORMAL = 64, Moments(0.0, 1.0)


@lru_cache(maxsize=1024)
def error_ratio(
    tiles: Tile | tuple[Tile, ...],
    points: str = "best",
    precision: str = "fp32",
    channels: int = CHANNELS,
    scaling: str | None = None,
) -> float:
    """Predicted relative RMS error on zero-mean data over that of direct convolution in FP32.

    ``tiles``: one along the last dimension, or nested ones. In fp32 it is √(noise gain), whatever
    the depth; in another precision, a text as `arithmetic` reads it, that of sums over
    ``channels`` × r products against FP32's of as many, by transforms of that ``scaling``. At most
    ADMISSIBLE means FP32's accuracy, relative to the largest numbers of a tile, as all errors of
    transformed tiles are. Constants: computed once.
    """
    nested = tiles if isinstance(tiles, tuple) else (tiles,)
    chosen = tiled(nested, points)
    chosen = replace(chosen, scaling=scaling) if chosen.tiles else chosen
    if precision == "fp32":
        return noise_gain(chosen) ** 0.5
    outputs, taps = [4 * t.n + t.r - 1 for t in nested], [t.r for t in nested]
    problem = Problem.of((1, *outputs, channels), (1, *taps, channels))
    own = predict(NORMAL, NORMAL, problem, chosen, arithmetic(precision)).relative_rms
    return own / _direct(channels * math.prod(taps))


@lru_cache(maxsize=1024)
def _direct(products: int) -> float:
    """Predicted relative RMS error on zero-mean data of so many products' sum in FP32."""
    problem = Problem.of((1, 1, products), (1, 1, products))
    return predict(NORMAL, NORMAL, problem, Direct(), arithmetic("fp32")).relative_rms
