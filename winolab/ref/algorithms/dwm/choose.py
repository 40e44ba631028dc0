"""The cheapest cut and tiles of a filter whose predicted error stays within a budget.

Along one dimension a choice is the largest piece and the outputs of its tile. Multiplications and,
to first order, the noise gain are products over the dimensions (Σ over a dimension's pieces), so
only choices that no other beats in both need be combined, and of the combinations again only
those on the front. Along the front the error itself is predicted, rounding by rounding, of data as
large as those at hand where a format of few exponents could not hold their transforms: what could
overflow a transform, or is expected to overflow sums, has an infinite error. Pieces are
balanced: with the best points no other cut into as many pieces has less noise (every cut of up to
11 taps, tiles of 2 to 8, in tests/ref/algorithms/dwm/test_choose.py).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import accumulate, product
from typing import Any

from numpy.typing import NDArray

from winolab.algorithm import Dwm, Problem, Tile, Winograd, direct
from winolab.points import points_for, tile_of
from winolab.ref.algorithms.dwm.cuts import Decomposition, Piece, cuts, exchanged, pieces_of
from winolab.ref.algorithms.engine import gains
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import Arithmetic, Float, Mp
from winolab.ref.error.metrics import noise_gain
from winolab.ref.error.predict import CONSTANT, Moments, predict
from winolab.ref.error.roundings import Units

# Largest tile and α that a choice may have: beyond them FP32 has no digits left.
MOST_OUTPUTS, MOST_ALPHA = 8, 16
NORMAL = Moments(0.0, 1.0)
Sizes = tuple[Moments, Moments]
USUAL = NORMAL, NORMAL
# Data of magnitudes within 2^±MODERATE neither overflow nor underflow in FP32's exponents.
WIDE, MODERATE = FORMATS["fp32"].emin, 30
# The share of runs that may be expected to have an output that is not finite.
RARELY = 1e-2
# Neighbours on the front that are looked at beside the one that bisection finds.
RIPPLES = 3


@dataclass(frozen=True)
class Choice:
    """Tiles of a dwm, one a dimension, what they cost and how much noise they gain."""

    tiles: tuple[Tile, ...]
    multiplications: int
    gain: float


def sizes(a: NDArray[Any], b: NDArray[Any], run: Arithmetic) -> Sizes:
    """How large the elements of both tensors are, where a format's range makes it matter."""
    if not isinstance(run, Float) or (run.scale and not run.scale.known):
        return USUAL
    formats = (run.storage, run.transform, run.product, run.accumulate, run.of_filters.transform)
    found = Moments.measured(a), Moments.measured(b)
    if not all(m.peak and math.isfinite(m.variance) for m in found):
        return USUAL
    powers = [math.frexp(m.peak)[1] for m in found]
    if all(f.emin <= WIDE for f in formats) and max(map(abs, powers)) <= MODERATE:
        return USUAL
    first, second = (_coarse(m, run.storage.max) for m in found)
    return first, second


def _coarse(m: Moments, largest: float) -> Moments:
    """Moments of zero-mean data as large, few different ones; no peak overflows anew."""
    part, power = math.frexp(m.peak)
    peak = math.ldexp(math.ceil(32 * part) / 32, power)
    power = math.ceil(4 * math.log2(m.mean**2 + m.variance)) / 4
    return Moments(0.0, 2.0**power, peak=max(m.peak, min(peak, largest)))


def choose(
    problem: Problem,
    algorithm: Dwm,
    run: Arithmetic,
    direction: str = "forward",
    data: Sizes = USUAL,
) -> Dwm:
    """``algorithm`` (a dwm with an error) with the cheapest tiles that keep to it.

    Cheapest is by multiplications. ``data``: how large both tensors' elements are (`sizes`).
    Raises ValueError that names the least error that can be had.
    """
    budget = algorithm.error
    if budget is None:
        raise ValueError(f"{algorithm} states no error to keep to")
    layer = replace(problem, batch=max(1, problem.batch))
    found = _chosen(layer, algorithm, run, direction, data)
    return _with(algorithm, found)


@lru_cache(maxsize=256)
def _chosen(
    problem: Problem, algorithm: Dwm, run: Arithmetic, direction: str, data: Sizes
) -> tuple[Tile, ...]:
    choices = front(problem, algorithm)
    summed = tuple(Tile(1, 1) for _ in problem.filter)
    if choices[-1].tiles != summed:  # what overflows last
        choices.append(Choice(summed, problem.macs, 1.0))
    budget = algorithm.error or 0.0

    @cache
    def error(i: int) -> float:
        tiles = choices[i].tiles
        return predicted(problem, _with(algorithm, tiles), run, direction, data)

    first = bisect_left(range(len(choices)), True, key=lambda i: error(i) <= budget)
    # The error falls along the front but for ripples: look a little to the left, or at its end.
    near = range(max(0, first - RIPPLES), min(first + 1, len(choices)))
    for i in near:
        if error(i) <= budget:
            return choices[i].tiles
    least = min(near, key=error)
    best = _with(algorithm, choices[least].tiles)
    raise ValueError(
        f"no cut of {problem.filter} taps keeps the error to {budget:g} in {run.name}: the least "
        f"is {error(least):.2g}, by {best}; allow more or take a wider precision"
    )


def _with(algorithm: Dwm, tiles: tuple[Tile, ...]) -> Dwm:
    """``algorithm`` with these tiles in place of its error; a list of points serves some piece of
    theirs, or all take their best."""
    pieces = (tile_of(t.n, r, algorithm.points) for t in tiles for r in range(1, t.r + 1))
    points = points_for(algorithm.points, *pieces)
    return replace(algorithm, tiles=tiles, error=None, points=points)


def front(problem: Problem, algorithm: Dwm) -> list[Choice]:
    """What no other choice beats in both multiplications and noise gain, cheapest first."""
    dimensions = [
        _best(_choices(problem, d, algorithm.points, algorithm.scaling))
        for d in range(problem.ndim)
    ]
    channels = problem.batch * problem.out_channels * problem.in_channels // problem.groups
    combined = [
        Choice(
            tuple(c.tiles[0] for c in some),
            channels * math.prod(c.multiplications for c in some),
            math.prod(c.gain for c in some),
        )
        for some in product(*dimensions)
    ]
    return _best(combined)


def _best(choices: list[Choice]) -> list[Choice]:
    kept: list[Choice] = []
    for choice in sorted(choices, key=lambda c: (c.multiplications, c.gain)):
        if not kept or choice.gain < kept[-1].gain:
            kept.append(choice)
    return kept


def _choices(problem: Problem, d: int, points: str, scaling: str | None) -> list[Choice]:
    """Along one dimension: every largest piece with every tile, direct summation once."""
    taps = problem.filter[d]
    found = []
    for r, n in product(range(1, taps + 1), range(1, MOST_OUTPUTS + 1)):
        if n + r - 1 > MOST_ALPHA or (n == 1) != (r == 1):
            continue
        tile = tile_of(n, r, points)
        pieces = list(
            cuts(
                taps, problem.output[d], problem.stride[d], problem.dilation[d], tile, True, points
            )
        )
        gain = sum(_gain(c.tile, points, scaling) * c.tile.r for c in pieces)
        total = sum(c.tile.r for c in pieces)
        cost = sum(c.products(len(c.outputs)) for c in pieces)
        found.append(Choice((tile,), cost, gain / total if total else 1.0))
    return found


@lru_cache(maxsize=512)
def _gain(tile: Tile, points: str, scaling: str | None) -> float:
    if 1 in (tile.n, tile.r):
        return 1.0
    return noise_gain(Winograd((tile,), points_for(points, tile), scaling))


def predicted(
    problem: Problem,
    algorithm: Dwm,
    run: Arithmetic,
    direction: str = "forward",
    data: Sizes = USUAL,
) -> float:
    """The relative RMS error expected of a dwm on normally distributed data, away from padding.

    Infinite where something of that size may overflow.

    Every piece's is predicted from its roundings; they add as variances, weighted by the taps (for
    the filter gradient: each tap has its own piece), and the aggregation's roundings are added.
    """
    if not isinstance(run, Float | Mp):
        return 0.0
    whole = pieces_of(problem, algorithm)
    of_filter = direction == "backward_filter"
    total = 0.0
    weights = []
    for piece in _of_one_phase(whole):
        taps = math.prod(c.tile.r for c in piece)
        weights.append(taps)
        shape = tuple(DIRECT_OF[c.direct](c.tile) for c in piece)
        depth = _depth(problem, piece, direction)
        error, overflow = _piece_error(shape, depth, algorithm, run, of_filter, data)
        outputs = math.prod({"forward": problem.y_shape, "backward_data": problem.x_shape}.get(
            direction, problem.w_shape))  # fmt: skip
        total += taps * (error if overflow * outputs <= RARELY else math.inf) ** 2
    if not weights:
        return 0.0
    share = sum(weights)
    aggregated = 0.0 if of_filter else sum(list(accumulate(weights))[1:]) / share
    unit = Units.of(run).transform.relative
    return math.sqrt(total / share + CONSTANT * unit**2 * aggregated)


def _of_one_phase(whole: Decomposition) -> Iterator[Piece]:
    """The pieces that one output is the sum of: those of the first phase of the outputs."""
    for piece in whole.pieces:
        if all(c.outputs.start == 0 for c in piece):
            yield piece


def _depth(problem: Problem, piece: Piece, direction: str) -> int:
    """Products that one transformed element is the sum of, taps summed directly left out."""
    if direction == "forward":
        return problem.in_channels // problem.groups
    if direction == "backward_data":
        return problem.out_channels // problem.groups
    tiles = (1 if c.direct else c.tile.n for c in piece)
    pairs = zip(piece, tiles, strict=True)
    return problem.batch * math.prod(-(-len(c.outputs) // n) for c, n in pairs)


@lru_cache(maxsize=4096)
def _piece_error(
    shape: tuple[Tile, ...],
    depth: int,
    algorithm: Dwm,
    run: Float | Mp,
    of_filter: bool,
    data: Sizes,
) -> tuple[float, float]:
    """Relative RMS of one piece, and the part of its outputs that are not finite.

    Dimensions summed directly lengthen the sum.
    """
    tiled = tuple(sorted(t for t in shape if t.n > 1))
    if not of_filter:
        depth *= math.prod(t.r for t in shape if t.n == 1)
    of = programs_of(algorithm)
    tiles = tiled or (DIRECT,)
    if of_filter:
        tiles, of = tuple(t.exchanged for t in tiles), exchanged(of)
    problem = Problem.of((1, *(t.inputs for t in tiles), depth), (4, *(t.r for t in tiles), depth))
    points = points_for(algorithm.points, *tiles)
    kind = Winograd(tiles, points, algorithm.scaling) if tiled else direct()
    found = predict(*data, problem, kind, run, programs=of)
    if isinstance(run, Float) and run.scale is None:
        sides = zip(data, gains([of(t) for t in tiles]), (run, run.of_filters), strict=True)
        for moments, gain, side in sides:
            if moments.peak * float(gain) > min(run.product.max, side.transform.max):
                return math.inf, 1.0
    return found.relative_rms, found.overflow


# A dimension that is summed directly is F(1, its taps).
DIRECT_OF = {True: lambda tile: Tile(1, tile.r), False: lambda tile: tile}
