"""DWM's three directions: a convolution as the sum of the unit-stride ones that cuts.py states.

Splitting, transformation, calculation, detransformation and aggregation (DWM, section 4): each
piece is a problem of its own for the tiled engine, whose results are added up.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from winolab.algorithm import Algorithm, Dwm, Problem, Tile, parse_algorithm
from winolab.arguments.words import plural
from winolab.problem import NAMES
from winolab.ref.algorithms.dwm.choose import USUAL, choose, sizes
from winolab.ref.algorithms.dwm.cuts import (
    Decomposition,
    Piece,
    exchanged,
    pieces_of,
    reached_inputs,
)
from winolab.ref.algorithms.engine import Region
from winolab.ref.algorithms.im2col import DIRECT, masked
from winolab.ref.algorithms.winograd import ProgramsOf, compute, group_slices, programs_of, rotated
from winolab.ref.arithmetic.simulated import Arithmetic, arithmetic


def decomposition(
    problem: Problem,
    algorithm: str | Algorithm,
    precision: str | Arithmetic = "fp32",
    direction: str = "forward",
) -> Decomposition:
    """How ``algorithm`` (a dwm, or its text "dwm:3:2") cuts ``problem``.

    Where it states an error instead of pieces, they are chosen for that precision and direction.
    Raises TypeError where the problem is none, ValueError where it is no dwm, where its pieces and
    tiles are for another number of dimensions, or where no cut has so small an error.

    >>> print(decomposition(Problem.of((1, 9, 1), (1, 5, 1)), "dwm:3:2"))
    A A A B B
    <BLANKLINE>
    A  taps 0..2  F(2,3)
    B  taps 3..4  F(2,2)
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem is of type {type(problem).__name__}; expected a Problem")
    if direction not in NAMES:
        raise ValueError(f"direction {direction!r}; expected one of {', '.join(NAMES)}")
    chosen = parse_algorithm(algorithm)
    if not isinstance(chosen, Dwm):
        raise ValueError(f"{chosen} cuts no filters; expected a dwm, such as dwm:3:2")
    return pieces_of(problem, resolved(problem, chosen, arithmetic(precision), direction))


def resolved(
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str = "forward",
    data: tuple[np.ndarray, np.ndarray] | None = None,
) -> Dwm:
    """The same algorithm with one tile a dimension, for the direction's ``data`` where given."""
    algorithm = Dwm.of(algorithm)
    if algorithm.error is not None:
        size = USUAL if data is None else sizes(*data, run)
        return choose(problem, algorithm, run, direction, size)
    tiles = algorithm.tiles * (problem.ndim if len(algorithm.tiles) == 1 else 1)
    if len(tiles) != problem.ndim:
        raise ValueError(
            f"{algorithm} has {plural(len(tiles), 'dimension')}; the problem has {problem.ndim}: "
            f"give one piece and tile, or {problem.ndim}"
        )
    return replace(algorithm, tiles=tiles)


def forward(
    x: np.ndarray,
    w: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    programs: ProgramsOf | None = None,
) -> np.ndarray:
    """y (N, *output, OC): split, transform, multiply, transform back, aggregate (DWM, section 4).

    Aggregation adds the pieces' outputs in the transform format, in the order of ``pieces``.
    """
    y = arithmetic.asarray(np.zeros(problem.y_shape, dtype=np.int64))
    chosen = resolved(problem, algorithm, arithmetic, "forward", (x, w))
    arithmetic = arithmetic.of_data(x, w)
    for piece in pieces_of(problem, chosen).pieces:
        part, box = engine_problem(problem, piece, "forward")
        taps = w[_index(c.taps for c in piece)]
        z = compute(x, taps, part, (box,), programs or programs_of(chosen), arithmetic)
        where = _index(c.outputs for c in piece)
        y[where] = arithmetic.add(y[where], z)
    return y


def backward_data(
    dy: np.ndarray,
    w: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    programs: ProgramsOf | None = None,
) -> np.ndarray:
    """dx (N, *input, IC), the sum of the pieces' gradients (DWM, eq. 21).

    A piece's gradient is the correlation of one phase of dy with the rotated piece, by the same
    F(n, r) (Lavin & Gray, section 4.2): where eq. 6 scatters overlapping tiles, this gathers, with
    as many multiplications. A stride spreads no zeros into dy.
    """
    dx = arithmetic.asarray(np.zeros(problem.x_shape, dtype=np.int64))
    chosen = resolved(problem, algorithm, arithmetic, "backward_data", (dy, w))
    arithmetic = arithmetic.of_data(dy, w)
    for piece in pieces_of(problem, chosen).pieces:
        reached = reached_by(problem, piece)
        if not all(map(len, reached)):
            continue
        part, box = engine_problem(problem, piece, "backward_data")
        taps = rotated(w[_index(c.taps for c in piece)], problem.groups)
        z = compute(dy, taps, part, (box,), programs or programs_of(chosen), arithmetic)
        where = _index(
            range(first + c.step * i.start, first + c.step * i.stop, c.step)
            for first, i, c in zip(_firsts(problem, piece), reached, piece, strict=True)
        )
        dx[where] = arithmetic.add(dx[where], z)
    return dx


def backward_filter(
    x: np.ndarray,
    dy: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    programs: ProgramsOf | None = None,
) -> np.ndarray:
    """dw (OC, *filter, IC/groups): every piece's own taps, summed over the phases of the output.

    Each is Gᵀ[(A dy) ⊙ (BT x)] summed over tiles (DWM, eq. 6), which is F(r, n) by the transforms
    of F(n, r) with AT and G in each other's place.
    """
    dw = arithmetic.asarray(np.zeros(problem.w_shape, dtype=np.int64))
    chosen = resolved(problem, algorithm, arithmetic, "backward_filter", (x, dy))
    arithmetic = arithmetic.of_data(x, dy)
    of = programs or programs_of(chosen)
    for piece in pieces_of(problem, chosen).pieces:
        part, box = engine_problem(problem, piece, "backward_filter")
        where = _index(c.taps for c in piece)
        some = dy[_index(c.outputs for c in piece)]
        for i, o in group_slices(problem):
            x_g, dy_g = x[..., i].swapaxes(0, -1), some[..., o].swapaxes(0, -1)
            z = compute(x_g, dy_g, part, (box,), exchanged(of), arithmetic).swapaxes(0, -1)
            taps = dw[o]
            taps[where] = arithmetic.add(taps[where], z)
    return dw


def engine_problem(problem: Problem, piece: Piece, direction: str) -> tuple[Problem, Region]:
    """What a piece is for the tiled engine: a forward problem, for filters a group's, and a box.

    A gradient of the data needs inputs that the piece reaches.
    """
    if direction == "backward_filter":
        tiles = [(c.tile.r, c.tile.exchanged) for c in piece]
        part = _filter_problem(problem, piece)
    elif direction == "backward_data":
        reached = reached_by(problem, piece)
        tiles = [(len(i), c.tile) for i, c in zip(reached, piece, strict=True)]
        part = _data_problem(problem, piece, reached)
    else:
        tiles = [(len(c.outputs), c.tile) for c in piece]
        part = _forward_problem(problem, piece)
    cuts = zip(tiles, piece, strict=True)
    return part, Region(tuple(_segment(size, tile, c.direct) for (size, tile), c in cuts))


def reached_by(problem: Problem, piece: Piece) -> list[range]:
    return [reached_inputs(problem, d, c) for d, c in enumerate(piece)]


def _segment(size: int, tile: Tile, direct: bool):
    (segment,) = masked(size, DIRECT if direct else tile)
    return segment


def _index(ranges) -> tuple[slice, ...]:
    """What selects the product of ranges from an array with batch or output channels in front."""
    return (slice(None), *(slice(r.start, r.stop, r.step) for r in ranges))


def _firsts(problem: Problem, piece: Piece) -> list[int]:
    """Per dimension, the input that tap 0 of output 0 reads; negative in the padding."""
    return [c.start - lo for c, (lo, _) in zip(piece, problem.padding, strict=True)]


def _paddings(inputs, outputs, filters, firsts, steps) -> tuple[tuple[int, int], ...]:
    """The padding with which windows start at ``firsts`` and number ``outputs``."""
    return tuple(
        (-first, step * (o + f - 2) + 1 - i + first)
        for i, o, f, first, step in zip(inputs, outputs, filters, firsts, steps, strict=True)
    )


def _forward_problem(problem: Problem, piece: Piece) -> Problem:
    steps = tuple(c.step for c in piece)
    taps = tuple(len(c.taps) for c in piece)
    outputs = [len(c.outputs) for c in piece]
    return replace(
        problem,
        filter=taps,
        stride=steps,
        dilation=steps,
        padding=_paddings(problem.input, outputs, taps, _firsts(problem, piece), steps),
    )


def _data_problem(problem: Problem, piece: Piece, reached: list[range]) -> Problem:
    """From dy to the inputs that a piece reaches, with rotated taps."""
    steps = tuple(c.outputs.step for c in piece)
    taps = tuple(len(c.taps) for c in piece)
    firsts = [
        c.outputs.start + c.outputs.step * (i.start - len(c.taps) + 1)
        for c, i in zip(piece, reached, strict=True)
    ]
    return replace(
        problem,
        in_channels=problem.out_channels,
        out_channels=problem.in_channels,
        input=problem.output,
        filter=taps,
        stride=steps,
        dilation=steps,
        padding=_paddings(problem.output, map(len, reached), taps, firsts, steps),
    )


def _filter_problem(problem: Problem, piece: Piece) -> Problem:
    """From x, with one phase of dy as the filter, to the taps of a piece; one group."""
    steps = tuple(c.step for c in piece)
    outputs = tuple(len(c.outputs) for c in piece)
    taps = [len(c.taps) for c in piece]
    return replace(
        problem,
        batch=problem.in_channels // problem.groups,
        in_channels=problem.batch,
        out_channels=problem.out_channels // problem.groups,
        groups=1,
        filter=outputs,
        stride=steps,
        dilation=steps,
        padding=_paddings(problem.input, taps, outputs, _firsts(problem, piece), steps),
    )
