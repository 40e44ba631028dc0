"""A proven bound for all data: relative to the largest result that their magnitudes allow.

The bounds of winolab.ref.error.proven grow with the magnitudes |a| and |b|, so that none of data
with |a| ≤ A and |b| ≤ B is above that of tensors filled with A and B. Of K products a result, the
largest is K·A·B, of which the bound is a multiple: what no data of these magnitudes exceed, and,
but for a format's range, what no data exceed. A tiled algorithm's is that of a tile of every kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from winolab.algorithm import Algorithm, Problem, Tile, direct, parse_algorithm, tiled
from winolab.problem import shapes
from winolab.ref.arithmetic.simulated import Arithmetic, Float, arithmetic, summed
from winolab.ref.error.bounds import bound
from winolab.ref.error.roundings import depth_of, known, tiling
from winolab.ref.kinds.registry import ENGINES

MOST_OUTPUTS = 24  # along a dimension, of algorithms whose bound is that of a smaller layer


def products(problem: Problem, direction: str) -> int:
    """K: the products that a result sums at most."""
    if known(direction) == "backward_filter":
        return problem.batch * math.prod(problem.output)
    channels = problem.in_channels if direction == "forward" else problem.out_channels
    return math.prod(problem.filter) * channels // problem.groups


@np.errstate(all="ignore")
def normwise(
    problem: Problem,
    algorithm: str | Algorithm,
    run: str | Arithmetic,
    *,
    direction: str = "forward",
    peaks: tuple[float, float] = (1.0, 1.0),
    stored: bool = True,
) -> float:
    """β with |computed − exact| ≤ β·K·A·B for every result and all data within ±A and ±B.

    ``peaks`` are A and B, by default 1; ``stored``: the data are numbers of the storage format,
    otherwise rounding them counts. Infinite where nothing is proven: for winrs and omega, and
    where a format does not hold numbers of that size. Raises ValueError as ``proven``.
    """
    algorithm, run = parse_algorithm(algorithm), arithmetic(run)
    count = products(problem, direction)
    largest = count * peaks[0] * peaks[1]
    if not largest:
        return 0.0
    if not ENGINES[algorithm.kind].TILED:
        return _of_layer(_smaller(problem, direction), algorithm, run, direction, peaks, stored)
    layer, boxes = tiling(problem, algorithm, direction)
    kinds = {(tuple(s.tile for s in box.segments), depth_of(layer, box)) for box in boxes}
    of_kinds = [
        of_tile(
            tuple(t for t in tiles if t.alpha > 1), depth, algorithm.points, algorithm.scaling,
            summed(run, algorithm), peaks, stored,
        )
        for tiles, depth in kinds
    ]  # fmt: skip
    return max(of_kinds, default=0.0) / largest


@lru_cache(maxsize=1024)
def of_tile(
    tiles: Sequence[Tile],
    depth: int,
    points: str,
    scaling: str | None,
    run: Arithmetic,
    peaks: tuple[float, float],
    stored: bool,
) -> float:
    """The bound of one nested tile, of direct products without tiles, of sums of ``depth``."""
    algorithm = tiled(tuple(tiles), points) if tiles else direct()
    if algorithm.tiles:
        algorithm = replace(algorithm, scaling=scaling)
    sizes, taps = ([t.alpha for t in tiles], [t.r for t in tiles]) if tiles else ([1], [1])
    problem = Problem.of((1, *sizes, depth), (1, *taps, depth))
    a, b = _filled(problem, "forward", peaks, run, stored)
    return float(bound(a, b, problem, algorithm, run).max())


def _of_layer(
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
    peaks: tuple[float, float],
    stored: bool,
) -> float:
    a, b = _filled(problem, direction, peaks, run, stored)
    limit = ENGINES[algorithm.kind].bound(a, b, problem, algorithm, run, direction)
    return float(limit.max()) / (products(problem, direction) * peaks[0] * peaks[1])


def _filled(
    problem: Problem, direction: str, peaks: tuple[float, float], run: Arithmetic, stored: bool
) -> list[np.ndarray]:
    """Tensors of these magnitudes, or of the storage format's next ones where it shall hold them;
    otherwise of magnitudes that no format holds."""
    made = []
    for shape, peak in zip(shapes(direction, problem), peaks, strict=False):
        if not stored:
            peak = math.nextafter(peak, math.inf)
        elif isinstance(run, Float) and float(run.storage.nearest(peak)) != peak:
            peak = float(run.storage.nearest(peak * (1 + 2 * run.storage.unit_roundoff)))
        made.append(np.full(shape, peak))
    return made


def _smaller(problem: Problem, direction: str) -> Problem:
    """A layer whose results sum as many products, and of which there are few."""
    groups = problem.groups
    if direction == "backward_filter":
        return replace(problem, in_channels=groups, out_channels=groups)
    sizes = tuple(
        i - max(0, o - MOST_OUTPUTS) * s
        for i, o, s in zip(problem.input, problem.output, problem.stride, strict=True)
    )
    few = replace(problem, batch=1, input=sizes)
    if direction == "forward":
        return replace(few, out_channels=groups)
    return replace(few, in_channels=groups)
