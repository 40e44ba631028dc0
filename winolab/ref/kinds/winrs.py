"""WinRS as a kind: filter gradients by segments of dy, and their cost. It has no proven bound."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Problem, gamma, winrs
from winolab.ref.algebra.transforms import Programs
from winolab.ref.algorithms import winograd
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winrs import gradient
from winolab.ref.algorithms.winrs.gradient import backward_data, backward_filter, forward
from winolab.ref.algorithms.winrs.plan import partition
from winolab.ref.algorithms.winrs.segments import Segment
from winolab.ref.arithmetic.simulated import Arithmetic, Exact, arithmetic
from winolab.ref.cost.blocks import Axis, Block, Work, tiled
from winolab.ref.error import predict as predictions
from winolab.ref.error.moments import CONSTANT, Moments
from winolab.ref.error.predict import Prediction
from winolab.ref.error.roundings import Units

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
KAHAN = 4  # additions of a compensated sum for every term after the first


def bound(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
) -> NDArray[np.float64]:
    """Infinity: there is none."""
    algorithm.check_direction(direction)
    return np.full(problem.w_shape, np.inf)


def predict(
    a: Moments | NDArray[Any],
    b: Moments | NDArray[Any],
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
) -> Prediction:
    """The relative RMS error of its segments' sums, weighted by the positions that they sum, and
    of the compensated sum's rounding; no other metric."""
    algorithm.check_direction(direction)
    x, dy = (v if isinstance(v, Moments) else Moments.measured(v) for v in (a, b))
    total = weight = overflow = uneven = 0.0
    for unit, segment, depth in _sums(problem, algorithm, run):
        tile = segment.tile
        layer = Problem.of((1, 4 * tile.n + tile.r - 1, depth), (1, tile.r, depth))
        kind = gamma(tile.alpha, tile.n, tile.r, points=algorithm.points_of(tile))
        kind = replace(kind, scaling=algorithm.scaling)
        found = predictions.predict(x, dy, layer, kind, run)
        share = math.prod(segment.size) * math.prod(unit.filter)
        total += share * found.relative_rms**2
        weight += share
        overflow, uneven = max(overflow, found.overflow), max(uneven, found.uneven)
    once = 0.0 if isinstance(run, Exact) else Units.of(run).transform.relative
    rms = math.sqrt(total / weight + CONSTANT * once**2) if weight else 0.0
    return Prediction(rms, math.nan, math.nan, {}, overflow, uneven)


def states(
    problem: Problem, algorithm: Algorithm, run: Arithmetic, direction: str
) -> Iterator[tuple[list[Programs], int]]:
    """Those of every segment."""
    of = winograd.programs_of(algorithm)
    for _, segment, depth in _sums(problem, algorithm, run):
        yield [of(segment.tile)], depth


def _sums(
    problem: Problem, algorithm: Algorithm, run: Arithmetic
) -> Iterator[tuple[Problem, Segment, int]]:
    """The segments of every phase, and how many products a state of theirs sums."""
    for phase in gradient.phases(problem):
        for segment in partition(phase.problem, algorithm, run):
            units = -(-segment.size[-1] // segment.tile.r)
            yield phase.problem, segment, problem.batch * math.prod(segment.size[:-1]) * units


def usual(problem: Problem, direction: str) -> Iterator[Algorithm]:
    """WinRS with its own plan, for the filter gradient."""
    if direction == "backward_filter":
        yield winrs()


def work(problem: Problem, algorithm: Algorithm, direction: str) -> Work:
    """Its segments, fused: its memory is its buckets, which a compensated sum adds up."""
    algorithm.check_direction(direction)
    buckets = _buckets(problem, algorithm)
    return Work(tuple(_segments(problem, algorithm)), KAHAN * buckets, buckets)


def _buckets(problem: Problem, algorithm: Algorithm) -> int:
    """Elements of WinRS's buckets beside dw itself."""
    total = 0
    for phase in gradient.phases(problem):
        segments = partition(phase.problem, algorithm, arithmetic("fp32"))
        total += (len(segments) - 1) * math.prod(phase.problem.w_shape)
    return total


def _segments(problem: Problem, algorithm: Algorithm) -> Iterator[Block]:
    """WinRS's: a block a segment and a tap of the leading dimensions, without what is clipped."""
    of = winograd.programs_of(algorithm)
    for phase in gradient.phases(problem):
        unit = phase.problem
        width = unit.filter[-1]
        for segment in partition(unit, algorithm, arithmetic("fp32")):
            tile = segment.tile
            last = Axis(tile, -(-width // tile.n), -(-segment.size[-1] // tile.r), width)
            for taps in product(*map(range, unit.filter[:-1])):
                boxes = gradient.clipped(unit, segment, taps)
                if all(map(len, boxes)):
                    leading = (Axis(DIRECT, 1, len(box), 1) for box in boxes)
                    yield tiled((*leading, last), of)
