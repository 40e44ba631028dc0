"""The Decomposable Winograd Method as a kind: its cost, and its bound.

It adds up pieces that are tiled, each addition rounding once more; the magnitudes of all pieces
add up as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Dwm, Problem, Tile, dwm
from winolab.ref.algebra.transforms import Programs
from winolab.ref.algorithms.dwm import choose, decompose
from winolab.ref.algorithms.dwm.cuts import Cut, exchanged, pieces_of, reached_inputs
from winolab.ref.algorithms.dwm.decompose import (
    backward_data,
    backward_filter,
    decomposition,
    forward,
)
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.arithmetic.simulated import Arithmetic
from winolab.ref.cost.blocks import Axis, Block, Work, operands, tiled
from winolab.ref.error.bounds import Costing, Magnitude, assembled
from winolab.ref.error.moments import Moments
from winolab.ref.error.predict import Prediction
from winolab.ref.error.roundings import depth_of
from winolab.ref.quantized.scales import Single

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


def usual(problem: Problem, direction: str) -> Iterator[Algorithm]:
    """Pieces of three taps, tiles of 2, 4 and 6."""
    yield from (dwm(3, n) for n in (2, 4, 6))


def work(problem: Problem, algorithm: Algorithm, direction: str) -> Work:
    """A block a piece, and the additions of the results that several pieces add to."""
    blocks = tuple(_blocks(problem, algorithm, direction))
    images, _, columns = operands(problem, direction)
    computed = sum(math.prod(axis.outputs for axis in block.axes) for block in blocks)
    added = computed - _results(problem, algorithm, direction)
    return Work(blocks, images * columns * problem.groups * added)


def _blocks(problem: Problem, algorithm: Algorithm, direction: str) -> Iterator[Block]:
    of = programs_of(algorithm)
    whole = decomposition(problem, algorithm, direction=direction)
    if direction == "backward_filter":
        of = exchanged(of)
    for piece in whole.pieces:
        axes = tuple(_cut_axis(problem, d, cut, direction) for d, cut in enumerate(piece))
        if all(axis.outputs for axis in axes):
            yield tiled(axes, of)


def _results(problem: Problem, algorithm: Algorithm, direction: str) -> int:
    """Results, of an image and a channel, that at least one piece adds to."""
    if direction != "backward_data":
        return math.prod(problem.output if direction == "forward" else problem.filter)
    reached = []
    for d, cuts in enumerate(decomposition(problem, algorithm, direction=direction).cuts):
        phases = [(cut.start, cut.step, reached_inputs(problem, d, cut)) for cut in cuts]
        reached.append(len({start + step * i for start, step, some in phases for i in some}))
    return math.prod(reached)


def _cut_axis(problem: Problem, d: int, cut: Cut, direction: str) -> Axis:
    n, r, outputs = cut.tile.n, cut.tile.r, len(cut.outputs)
    if direction == "backward_filter":
        if cut.direct:
            return Axis(DIRECT, r, outputs, r)
        return Axis(cut.tile.exchanged, 1, -(-outputs // n), r)
    if direction == "backward_data":
        outputs = len(reached_inputs(problem, d, cut))
    if cut.direct:
        return Axis(DIRECT, outputs, r, outputs)
    return Axis(cut.tile, -(-outputs // n), 1, outputs)


def bound(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
) -> NDArray[np.float64]:
    """The bound of the sum of its pieces."""
    chosen = decompose.resolved(problem, algorithm, run, direction, (a, b))
    pieces = list(_pieces(problem, chosen, direction))
    magnitude = Magnitude()
    with np.errstate(all="ignore"):
        compute = getattr(decompose, direction)
        size = np.abs(compute(np.abs(a), np.abs(b), problem, chosen, magnitude))
    of = programs_of(chosen)
    if direction == "backward_filter":
        of = exchanged(of)
    costing = Costing(chosen, of, exact=True, pieces=max(1, len(pieces)))
    return assembled(a, b, run, size, magnitude, set(pieces), costing)


def _pieces(
    problem: Problem, algorithm: Dwm, direction: str
) -> Iterator[tuple[tuple[Tile, ...], int]]:
    """Tiles of every dimension of each piece that has results, and how many products they sum."""
    for piece in pieces_of(problem, algorithm).pieces:
        if direction == "backward_data" and not all(map(len, decompose.reached_by(problem, piece))):
            continue
        part, box = decompose.engine_problem(problem, piece, direction)
        yield tuple(s.tile for s in box.segments), depth_of(part, box) // part.groups


def states(
    problem: Problem, algorithm: Algorithm, run: Arithmetic, direction: str
) -> Iterator[tuple[list[Programs], int]]:
    """Those of each piece."""
    chosen = decompose.resolved(problem, algorithm, run, direction)
    of = programs_of(chosen)
    if direction == "backward_filter":
        of = exchanged(of)
    for tiles, depth in _pieces(problem, chosen, direction):
        yield [of(tile) for tile in tiles], depth


def predict(
    a: Moments | NDArray[Any],
    b: Moments | NDArray[Any],
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
) -> Prediction:
    """The relative RMS error of the sum of its pieces, away from padding; no other metric.

    Raises ValueError for scales of the data.
    """
    if isinstance(run, Single):
        raise run.unforeseen()
    data = None if isinstance(a, Moments) or isinstance(b, Moments) else (a, b)
    chosen = decompose.resolved(problem, algorithm, run, direction, data)
    first, second = (v if isinstance(v, Moments) else Moments.measured(v) for v in (a, b))
    rms = choose.predicted(problem, chosen, run, direction, (first, second))
    uneven = max(
        (_uneven(tiles, chosen) for tiles, _ in _pieces(problem, chosen, direction)), default=1.0
    )
    return Prediction(rms, math.nan, math.nan, {}, float(math.isinf(rms)), uneven)


@lru_cache(maxsize=1024)
def _uneven(tiles: tuple[Tile, ...], algorithm: Dwm) -> float:
    """Noise gain of the output of a tile that has most, over their mean."""
    of, worst = programs_of(algorithm), 1.0
    for tile in tiles:
        at, g, bt = (np.array(m.exact(), float) for m in (of(tile).AT, of(tile).G, of(tile).BT))
        gains = at**2 @ ((g**2).sum(axis=1) * (bt**2).sum(axis=1))
        worst *= float(gains.max() / gains.mean())
    return worst
