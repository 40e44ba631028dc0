"""The pieces of a DWM as unit-stride problems of views of the arrays, alike in all directions.

Elements of x that a piece reads lie a step apart, so that it is a convolution of stride and
dilation 1 of a strided view: what kernels run that have neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.algorithm import Algorithm, Problem, Tile
from winolab.ref.algorithms.dwm.cuts import Piece
from winolab.ref.algorithms.dwm.decompose import decomposition


@dataclass(frozen=True)
class Part:
    """One piece: what it takes of x, w and y along each spatial dimension, and the ``problem`` of
    these views, whose padding may have zeros at either end and cuts nothing.

    ``tiles`` are F(n, r) with as many taps as the piece has, or direct, along each dimension.
    """

    problem: Problem
    x: tuple[slice, ...]
    w: tuple[slice, ...]
    y: tuple[slice, ...]
    tiles: tuple[Tile | None, ...]

    def of(self, name: str) -> tuple[slice, ...]:
        """What it takes of an array by its name, dx being x's."""
        return {"x": self.x, "w": self.w, "y": self.y}[name.removeprefix("d")]


def parts(
    problem: Problem,
    algorithm: str | Algorithm,
    precision: str = "fp32",
    direction: str = "forward",
) -> Iterator[Part]:
    """The pieces of ``decomposition(problem, algorithm, precision, direction)`` in their order, but
    for those that meet padding alone.

    The result is the sum of the parts' results: forward at ``y``, of backward data at ``x``, of
    filters' gradients at ``w``.

    >>> [p.problem.filter for p in parts(Problem.of((1, 9, 1), (1, 5, 1), stride=2), "dwm:3:2")]
    [(3,), (2,)]
    """
    for piece in decomposition(problem, algorithm, precision, direction).pieces:
        if part := _part(problem, piece):
            yield part


def _part(problem: Problem, piece: Piece) -> Part | None:
    read, padding, tiles = [], [], []
    for cut, size, (low, _) in zip(piece, problem.input, problem.padding, strict=True):
        steps, at = divmod(cut.start - low, cut.step)  # the first element's, at of its phase
        most = steps + len(cut.outputs) + len(cut.taps) - 1
        start = max(0, steps)
        stop = max(start, min(-(-(size - at) // cut.step), most))
        if start == stop or not len(cut.outputs):
            return None
        read.append(slice(at + cut.step * start, at + cut.step * (stop - 1) + 1, cut.step))
        padding.append((start - steps, most - stop))
        tiles.append(None if cut.direct else cut.tile)
    part = replace(
        problem,
        input=tuple(len(range(s.start, s.stop, s.step)) for s in read),
        filter=tuple(len(c.taps) for c in piece),
        stride=(1,) * problem.ndim,
        dilation=(1,) * problem.ndim,
        padding=tuple(padding),
    )
    w, y = (tuple(_slice(getattr(c, name)) for c in piece) for name in ("taps", "outputs"))
    return Part(part, tuple(read), w, y, tuple(tiles))


def _slice(some: range) -> slice:
    return slice(some.start, some.stop, some.step)
