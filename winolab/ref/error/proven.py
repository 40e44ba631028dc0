"""A proven bound of the rounding errors of every algorithm but WinRS, in every direction.

Tiled algorithms: winolab.ref.error.bounds. DWM adds up pieces that are tiled, each addition
rounding once more; the magnitudes of all pieces add up as well.

**FFT.** Norms replace paths. With e = S η / (1 − S η), S the number of radix-2 steps of the
transform and η = μ + γ₄(√2 + μ), μ = u the error of a twiddle factor, a transform errs by at most e
of its result's 2-norm (Higham 2002, theorem 24.2; a pass of radix 4 or 8 does nothing that its
radix-2 steps do not), so lengths are powers of two. A tile's states Z = Σ_k X_k conj(W_k) then
obey, by Cauchy and Schwarz and Parseval,

    (1/N) Σ_s |δZ_s| ≤ δ M,   δ = (1 + e)² (1 + c γ) − 1,   M = Σ_k ‖x_k‖₂ ‖w_k‖₂

with γ that of the real sums and of their combination, and c = 2 or 2 + 2√2, the magnitudes that
four or three products of real and imaginary parts add up to over |X||W|. The inverse transform adds
e times the norm of its N results, ‖Z‖₂/√N ≤ √taps · M, and of their errors, at most √N δ M.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Dwm, Fft, Problem, parse_algorithm
from winolab.ref.algorithms import fft
from winolab.ref.algorithms.dwm import decompose
from winolab.ref.algorithms.dwm.cuts import exchanged, pieces_of
from winolab.ref.algorithms.fft import Fourier
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import Arithmetic, Float, arithmetic
from winolab.ref.error import bounds
from winolab.ref.error.bounds import Costing, Magnitude, assembled
from winolab.ref.error.roundings import Units, depth_of, known

EMIN = FORMATS["fp32"].emin


@np.errstate(all="ignore")
def proven(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: str | Algorithm,
    run: str | Arithmetic,
    *,
    direction: str = "forward",
) -> NDArray[np.float64]:
    """Bound of |computed − exact| for each output of the algorithm's function of that direction.

    Arguments and infinities are those of bounds.bound. An FFT has none whose lengths are not powers
    of two, or whose products are of fewer exponents than FP32's; omega and winrs have none.

    Raises ValueError for an unknown direction, or an algorithm that does not serve it.
    """
    known(direction)
    algorithm, run = parse_algorithm(algorithm), arithmetic(run)
    if isinstance(algorithm, Dwm):
        return _decomposed(a, b, problem, algorithm, run, direction)
    if isinstance(algorithm, Fft):
        return _fourier(a, b, problem, algorithm, run, direction)
    if algorithm.kind in ("omega", "winrs") and direction == "backward_filter":
        return np.full(problem.w_shape, np.inf)
    return bounds.bound(a, b, problem, algorithm, run, direction=direction)


def _decomposed(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: Dwm,
    run: Arithmetic,
    direction: str,
) -> NDArray[np.float64]:
    algorithm = decompose.resolved(problem, algorithm, run, direction, (a, b))
    pieces = pieces_of(problem, algorithm).pieces
    if direction == "backward_data":
        pieces = tuple(p for p in pieces if all(map(len, decompose.reached_by(problem, p))))
    kinds = set()
    for piece in pieces:
        part, box = decompose.engine_problem(problem, piece, direction)
        tiles = tuple(s.tile for s in box.segments)
        kinds.add((tiles, depth_of(part, box) // part.groups))
    magnitude = Magnitude()
    with np.errstate(all="ignore"):
        compute = getattr(decompose, direction)
        size = np.abs(compute(np.abs(a), np.abs(b), problem, algorithm, magnitude))
    of = programs_of(algorithm)
    if direction == "backward_filter":
        of = exchanged(of)
    costing = Costing(algorithm, of, exact=True, pieces=max(1, len(pieces)))
    return assembled(a, b, run, size, magnitude, kinds, costing)


@dataclass(frozen=True)
class _Norms(Fourier):
    """Σ_k ‖x_k‖₂ ‖w_k‖₂ of a tile, at each of its outputs."""

    def _filters(self, w: np.ndarray) -> np.ndarray:
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


def _fourier(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: Fft,
    run: Arithmetic,
    direction: str,
) -> NDArray[np.float64]:
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
    crossed = 2.0 if algorithm.products == 4 else 2 + 2 * math.sqrt(2)
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


def _log2(length: int) -> int:
    return length.bit_length() - 1


def _depth(problem: Problem, tiles: Sequence[fft.Window], direction: str) -> int:
    """Products that a state sums: channels, or images times pieces of dy."""
    if direction == "backward_filter":
        pieces = (-(-o // t.r) for o, t in zip(problem.output, tiles, strict=True))
        return math.prod(pieces) * problem.batch
    channels = problem.in_channels if direction == "forward" else problem.out_channels
    return channels // problem.groups
