"""What direct, nested Winograd and Γ share: the tiled engine as it is, its bound and its cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Problem
from winolab.ref.algebra.transforms import Programs
from winolab.ref.algorithms import winograd
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winograd import backward_data, backward_filter, forward
from winolab.ref.arithmetic.simulated import Arithmetic, summed
from winolab.ref.cost.blocks import Axis, Block, Work, tiled
from winolab.ref.error import bounds
from winolab.ref.error import predict as predictions
from winolab.ref.error.moments import Moments
from winolab.ref.error.predict import Prediction
from winolab.ref.error.roundings import depth_of, tiling
from winolab.ref.quantized import bounds as quantized
from winolab.ref.quantized.residues import Residues
from winolab.ref.quantized.scales import Quantized

__all__ = [
    "TILED",
    "backward_data",
    "backward_filter",
    "bound",
    "forward",
    "predict",
    "states",
    "work",
]

TILED = True


def bound(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
) -> NDArray[np.float64]:
    """The bound of every path through the programs (winolab.ref.error.bounds), and of what grids
    round (winolab.ref.quantized.bounds)."""
    if isinstance(run, Quantized | Residues):
        return quantized.bound(a, b, problem, algorithm, run, direction=direction)
    return bounds.bound(a, b, problem, algorithm, run, direction=direction)


def predict(
    a: Moments | NDArray[Any],
    b: Moments | NDArray[Any],
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
) -> Prediction:
    """Every rounding of the programs, by the data's moments (winolab.ref.error.predict)."""
    return predictions.predict(
        a, b, problem, algorithm, summed(run, algorithm), direction=direction
    )


def states(
    problem: Problem, algorithm: Algorithm, run: Arithmetic, direction: str
) -> Iterator[tuple[list[Programs], int]]:
    """Those of every region."""
    of = winograd.programs_of(algorithm)
    layer, boxes = tiling(problem, algorithm, direction)
    for box in boxes:
        yield [of(s.tile) for s in box.segments], depth_of(layer, box)


def work(problem: Problem, algorithm: Algorithm, direction: str) -> Work:
    """A block a region."""
    return Work(tuple(_blocks(problem, algorithm, direction)))


def _blocks(problem: Problem, algorithm: Algorithm, direction: str) -> Iterator[Block]:
    of = winograd.programs_of(algorithm)
    if direction == "backward_filter":
        outputs, taps = problem.filter, problem.output
        tiles = algorithm.tiles or (DIRECT,) * problem.ndim
        if algorithm.kind == "gamma":
            raise winograd.no_gradient(algorithm)
        if algorithm.kind == "winograd" and not problem.unit:
            winograd.regions(problem, algorithm)
        pairs = zip(outputs, taps, tiles, strict=True)
        yield tiled(tuple(Axis(t, -(-o // t.n), -(-r // t.r), o) for o, r, t in pairs), of)
        return
    if direction == "backward_data":
        winograd.regions(problem, algorithm)
        if algorithm.kind == "direct":
            axes = zip(problem.output, problem.filter, strict=True)
            yield tiled(tuple(Axis(DIRECT, o, r, 0) for o, r in axes), of)
            return
        adjoint = Problem(
            problem.batch,
            problem.out_channels,
            problem.in_channels,
            problem.output,
            problem.filter,
            problem.stride,
            tuple(
                (r - 1 - lo, i - o + lo)
                for r, i, o, (lo, _) in zip(
                    problem.filter, problem.input, problem.output, problem.padding, strict=True
                )
            ),
            problem.dilation,
            problem.groups,
        )
        problem = adjoint
    for region in winograd.regions(problem, algorithm):
        pieces = region.pieces(problem)
        axes = zip(region.segments, pieces, problem.output, strict=True)
        yield tiled(
            tuple(Axis(s.tile, s.tiles, q, min(s.outputs, o)) for s, q, o in axes),
            of,
        )
