"""Overlap-save by FFT as a kind: its cost, and its bound.

**FFT.** Norms replace paths. With e = S η / (1 − S η), S the number of radix-2 steps of the
transform and η = μ + γ₄(√2 + μ), μ = u the error of a twiddle factor, a transform errs by at most e
of its result's 2-norm (Higham 2002, theorem 24.2; a pass of radix 4 or 8 does nothing that its
radix-2 steps do not), so lengths are powers of two. A tile's states Z = Σ_k X_k conj(W_k) then
obey, by Cauchy and Schwarz and Parseval,

    (1/N) Σ_s |δZ_s| ≤ δ M,   δ = (1 + e)² (1 + c γ) − 1,   M = Σ_k ‖x_k‖₂ ‖w_k‖₂

with γ that of the real sums and of their combination, and c = 2 or 2 + 2√2, the magnitudes that
four or three products of real and imaginary parts add up to over |X||W|. The inverse transform adds
e times the norm of its N results, ‖Z‖₂/√N ≤ √taps · M, and of their errors, at most √N δ M.

**Prediction.** A radix-2 step adds two numbers, one of them times a twiddle factor. With v the
variance of a relative rounding error, the addition adds v to the result's relative variance, and so
does the multiplication, which rounds half of the energy by 2 v; it does nothing in the first two
steps of a dimension. A cyclic correlation errs alike at every place: what a state's products err
falls on all N, and is in proportion to the state's energy (winolab.ref.kinds.spectra): a mean of
the data lies at the lowest frequencies, where the products' errors of all channels are small beside
their sum. Real states take one product, whatever the others take. Along a dimension in which an
operand has one number its states are alike, and so are their errors: these stay at its place. What
the transforms err is spread over all states, of the inverse over all places, where the data fill
them; where these fill but a part, it is in proportion if it is made in the last steps and as if
they were alone if in the first; the geometric mean is taken. Below the least normal number errors
have a size: s²/12 of a real product, with s the least number above 0. Four of them make a complex
one, in the steps and in each of the sums; the inverse transform leaves a 1/N of their squares, and
rounds its own results. Spectra that narrower formats hold err by s²/6 of those.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Fft, Problem, direct
from winolab.algorithm import fft as named
from winolab.ref.algorithms import fft
from winolab.ref.algorithms.fft import Fourier, backward_data, backward_filter, forward
from winolab.ref.algorithms.winograd import data_adjoint, filter_adjoint
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import Arithmetic, Float, arithmetic
from winolab.ref.cost.blocks import Axis, Block, Operations, Work, hermitian, real_fft
from winolab.ref.error import predict as predictions
from winolab.ref.error.moments import CONSTANT, Moments
from winolab.ref.error.predict import Prediction
from winolab.ref.error.roundings import Units
from winolab.ref.kinds.spectra import Energies, largest

__all__ = [
    "TILED",
    "backward_data",
    "backward_filter",
    "bound",
    "forward",
    "predict",
    "states",
    "usual",
    "work",
]

TILED = False
EMIN = FORMATS["fp32"].emin


def usual(problem: Problem, direction: str) -> Iterator[Algorithm]:
    """Transforms of 8, 16 and 32 that are at least twice as long as the filter."""
    for size in (8, 16, 32) if problem.unit else ():
        if size >= 2 * max(problem.filter):
            yield named(size)


def work(problem: Problem, algorithm: Algorithm, direction: str) -> Work:
    """One block, of all tiles."""
    return Work((_block(problem, Fft.of(algorithm), direction),))


def _block(problem: Problem, algorithm: Fft, direction: str) -> Block:
    windows = fft.windows(problem, algorithm, direction)
    outputs, taps = {
        "forward": (problem.output, (1,) * problem.ndim),
        "backward_data": (problem.input, (1,) * problem.ndim),
        "backward_filter": (problem.filter, problem.output),
    }[direction]
    axes = tuple(
        Axis(w, -(-o // w.n), -(-t // w.r), o)
        for w, o, t in zip(windows, outputs, taps, strict=True)
    )
    lengths = [w.alpha for w in windows]
    states = hermitian(lengths)
    transform = Operations(additions=real_fft(lengths))
    three = algorithm.products == 3
    held = algorithm.products if three else 2
    return Block(
        axes,
        algorithm.products * states,
        transform + Operations(additions=states * three),
        transform + Operations(additions=2 * states * three),
        transform + Operations(additions=2 * states * three),
        held * states,
        held * states,
        held * states,
    )


@dataclass(frozen=True)
class _Norms(Fourier):
    """Σ_k ‖x_k‖₂ ‖w_k‖₂ of a tile, at each of its outputs."""

    def filters(self, w: np.ndarray) -> np.ndarray:
        return _norm(self._pieces(w), self._ndim)

    def _outputs(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        v = _norm(v, self._ndim)[(0,) * self._ndim]
        tiles, depth = v.shape[0], u.shape[-2]
        size = v.reshape(tiles, depth) @ u.reshape(depth, -1)
        outputs = math.prod(s.tile.n for s in self.region.segments)
        return np.broadcast_to(size, (outputs, *size.shape)).reshape(-1, size.shape[-1])


def _norm(x: np.ndarray, ndim: int) -> np.ndarray:
    """‖x‖₂ over the leading axes, kept; of numbers as small as FP64 has."""
    axes = tuple(range(ndim))
    peak = np.abs(x).max(axis=axes, keepdims=True, initial=0.0)
    with np.errstate(all="ignore"):
        unit = np.where(peak > 0, x / peak, 0.0)
        return peak * np.sqrt((unit**2).sum(axis=axes, keepdims=True))


def bound(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
) -> NDArray[np.float64]:
    """The bound of the module's text; infinity where lengths are no powers of two."""
    tiles = fft.windows(problem, algorithm, direction)
    lengths = fft.sizes(problem, algorithm)
    fp64 = arithmetic("fp64")
    shape = {
        "forward": problem.y_shape,
        "backward_data": problem.x_shape,
        "backward_filter": problem.w_shape,
    }[direction]
    powers = all(length & (length - 1) == 0 for length in lengths)
    if not isinstance(run, Float) or not powers or run.scale or run.product.emin > EMIN:
        return np.full(shape, np.inf)
    with np.errstate(all="ignore"):
        norms = fft.evaluated(a, b, problem, algorithm, fp64, direction, _Norms)
    units, steps, count = Units.of(run), sum(map(_log2, lengths)), math.prod(lengths)
    depth = _depth(problem, tiles, direction)
    u = run.transform.unit_roundoff
    step = u + 4 * u / (1 - 4 * u) * (math.sqrt(2) + u)
    if steps * step >= 1:
        return np.full(shape, np.inf)
    e = steps * step / (1 - steps * step)
    growth = units.sums(depth).growth + units.result.growth
    growth += 2 * units.product.growth + 3 * units.transform.growth
    crossed = 2.0 if Fft.of(algorithm).products == 4 else 2 + 2 * math.sqrt(2)
    storage = 2 * units.storage.growth
    if growth >= 1:
        return np.full(shape, np.inf)
    before = math.exp(storage) * (1 + e) ** 2 * (1 + crossed * math.expm1(growth)) - 1
    taps = math.prod(t.r for t in tiles)
    relative = before + e * (math.sqrt(taps) * (1 + before) + math.sqrt(count) * before)
    relative += (depth * taps + 4) * FORMATS["fp64"].unit_roundoff  # of the oracle, and of norms
    peaks = float(np.max(np.abs(a), initial=0.0)), float(np.max(np.abs(b), initial=0.0))
    formats = (run.storage, run.transform, run.product, run.accumulate)
    largest, tiny = min(f.max for f in formats), max(f.smallest_subnormal for f in formats)
    peak = max(1.0, *peaks)
    if 4 * count**2 * depth * peak * peak > largest:
        return np.full(shape, np.inf)
    floor = 16 * (steps + 1) * count**2 * depth * (1 + sum(peaks)) * tiny
    return np.where(np.isnan(norms), np.inf, relative * norms + floor)


def predict(
    a: Moments | NDArray[Any],
    b: Moments | NDArray[Any],
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
) -> Prediction:
    """The relative RMS error by the model of the module's text; no other metric. It is infinite
    where spectra of data as large as these may overflow what the products hold.

    Raises ValueError for an arithmetic without a Fourier transform.
    """
    if not isinstance(run, Float) or run.transform.name not in ("fp32", "fp64"):
        raise ValueError(
            f"{algorithm} transforms in FP32 or FP64, not in {run.name}; use fp32 or fp64"
        )
    tiles, lengths = fft.windows(problem, algorithm, direction), fft.sizes(problem, algorithm)
    of_a, of_b = (m if isinstance(m, Moments) else Moments.measured(m) for m in (a, b))
    data = of_a, of_b
    found = _energies(of_a, of_b, problem, tiles, direction)
    if not all(math.isfinite(v) for m in data for v in (m.mean, m.variance)):
        return Prediction(math.nan, math.nan, math.nan, {})
    if not found or not found.power:
        return Prediction(0.0, 0.0, 0.0, {})
    three = Fft.of(algorithm).products == 3
    limit = run.product.max / (1 + three)
    most = max(largest(m, n) for m, n in zip(data, found.counts, strict=True))
    if most > limit and not run.scale:
        return Prediction(math.inf, math.nan, math.nan, {}, 1.0)
    v = CONSTANT * run.transform.unit_roundoff**2
    transform = v * sum(s + max(0.0, s - 2) for s in map(math.log2, lengths))
    operands, sums, steady = _sums(found, data, run)
    varying = found.apart - found.steady / found.depth
    states = varying + found.steady
    # Both operands err as much. A spectrum of one number is that number: real, so that it errs in
    # one product of each state, and without error where products hold what the data were.
    each = [operands / 2 * more for more in found.alike]
    alone = sum(e for e, count in zip(each, found.counts, strict=True) if count == 1)
    several = sum(each) - alone
    if run.storage.precision <= run.product.precision:
        alone = 0.0
    multiplied = several * found.apart + sums * varying + steady * found.steady
    if three:  # of sums of two parts, each twice what is left of them, but of real states
        multiplied = multiplied + (multiplied + 2 * v * states) * _complex(lengths)
    back = math.sqrt(float(states.sum()) * found.power)
    square = float(multiplied.sum()) + alone * float(found.apart.sum()) + v * found.power
    transforms = (1 + math.sqrt(found.alike[0])) / math.sqrt(found.filled)
    square += transform * (transforms * found.spread + back)
    square += _lost(of_a, of_b, run, found.depth, math.prod(t.r for t in tiles), lengths)
    return Prediction(math.sqrt(square / found.power), math.nan, math.nan, {})


def _complex(lengths: Sequence[int]) -> NDArray[np.float64]:
    """1 at each state that is complex, 0 at those that are real: of frequencies 0 and a half."""
    real = [2 * np.arange(n) % n == 0 for n in lengths]
    return 1.0 - reduce(np.multiply.outer, real)


def _energies(
    a: Moments, b: Moments, problem: Problem, tiles: Sequence[fft.Window], direction: str
) -> Energies | None:
    """The spectra of a direction's tiles; None where nothing is computed."""
    groups = problem.groups
    layer = {
        "forward": lambda p: p,
        "backward_data": data_adjoint,
        "backward_filter": filter_adjoint,
    }[direction](problem)
    channels = layer.in_channels // (1 if direction == "backward_filter" else groups)
    if not (channels and all(layer.output) and all(layer.filter)):
        return None
    return Energies.of(a, b, layer, tiles, channels)


def _sums(found: Energies, data: Sequence[Moments], run: Float) -> tuple[float, float, float]:
    """Relative variances of sums of products of states: of the operands' rounding, and of what
    summation errs, of states around 0 and of those of the means."""
    one = Problem.of((1, 1, found.depth), (1, 1, found.depth))
    spectra = replace(run, storage=run.transform)  # which the product format may not hold

    def of(a: Moments, b: Moments) -> tuple[float, float]:
        made = predictions.predict(a, b, one, direct(), spectra)
        square, share = made.relative_rms**2, made.shares.get("operands", 0.0)
        return square * share, square * (1 - share)

    operands, sums = of(Moments(0.0, 1.0), Moments(0.0, 1.0))
    if not found.steady.any():
        return operands, sums, 0.0
    a, b = (
        Moments(1.0, m.variance / (m.mean**2 * count))
        for m, count in zip(data, found.counts, strict=True)
    )
    return operands, sums, of(a, b)[1]


def _lost(
    a: Moments,
    b: Moments,
    run: Float,
    depth: int,
    taps: int,
    lengths: Sequence[int],
) -> float:
    """Variance of what underflows, in an output; 0 where data are zeros or not finite."""
    energies = [m.mean**2 + m.variance for m in (a, b)]
    if not (min(energies) > 0 and math.isfinite(max(energies))):
        return 0.0
    formats = run.transform, run.accumulate, run.product
    transform, total, held = (f.smallest_subnormal**2 / 12 for f in formats)
    steps, count = sum(map(math.log2, lengths)), math.prod(lengths)
    result = transform + (4 * depth * total + 2 * steps * transform) / count
    each = [2 * transform, 2 * transform]
    if run.product.precision < run.transform.precision:
        each = [2 * (transform + held / filled) for filled in (count, taps)]
    return result + depth * taps * sum(np.multiply(each, energies[::-1]))


def states(problem: Problem, algorithm: Algorithm, run: Arithmetic, direction: str) -> tuple[()]:
    """None: an error of a state is spread over all of a tile."""
    return ()


def _log2(length: int) -> int:
    return length.bit_length() - 1


def _depth(problem: Problem, tiles: Sequence[fft.Window], direction: str) -> int:
    """Products that a state sums: channels, or images times pieces of dy."""
    if direction == "backward_filter":
        pieces = (-(-o // t.r) for o, t in zip(problem.output, tiles, strict=True))
        return math.prod(pieces) * problem.batch
    channels = problem.in_channels if direction == "forward" else problem.out_channels
    return channels // problem.groups
