"""WinRS's partition: a gradient dy cut into segments of nearly equal work (its Algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from winolab.algorithm import Problem, Tile
from winolab.ref.algorithms.winrs.kernels import Kernel, Pair


@dataclass(frozen=True)
class Segment:
    """A box of dy's spatial dimensions, its width a multiple of its kernel's r: one bucket."""

    kernel: Kernel
    start: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def tile(self) -> Tile:
        return self.kernel.tile


@dataclass(frozen=True)
class Shape:
    """Into how many parts each leading dimension is cut, and the first kernel's units a segment."""

    parts: tuple[int, ...]
    units: int


def least_size(problem: Problem, d: int) -> int:
    """The least segment along a leading dimension that has work for every tap.

    One more than the padding: p elements at the edge would meet nothing but padding for one tap.
    (The paper's H_max = O_H/p_H, which divides by 0 without padding, admits such segments.)
    """
    return min(max(problem.padding[d]) + 1, problem.output[d])


def most_parts(problem: Problem) -> tuple[int, ...]:
    """H_max, per leading dimension."""
    return tuple(o // least_size(problem, d) for d, o in enumerate(problem.output[:-1]))


def shape(problem: Problem, pair: Pair, wanted: int) -> Shape:
    """Algorithm 2: the shape of segments that brings their number near ``wanted``.

    W_max is the number of the first kernel's units, as in Figure 3, where two segments of two units
    and one of the second kernel make a width of 28; the paper's ⌈O_W/r0⌉ would forbid that. The
    least x is ⌈W_max/Ẑ⌉, as its constraint (1) asks, where its line 5 rounds down.
    """
    heights, width = most_parts(problem), pair.units
    h_max = math.prod(heights)
    count = max(1, min(wanted, h_max * width))
    whole = (1,) * len(heights)
    if count == 1:
        return Shape(whole, width)
    area = math.prod(problem.output[:-1]) * problem.output[-1] / pair.first.tile.r
    if count >= width:
        return Shape(_spread(problem, heights, area / count), 1)
    if width % count == 0:
        return Shape(whole, width // count)
    for x in range(-(-width // count), h_max * width // count + 1):
        if width % x == 0:
            return Shape(_spread(problem, heights, area / (count * x)), x)
    return Shape(whole, width)


def _spread(problem: Problem, most: tuple[int, ...], rows: float) -> tuple[int, ...]:
    """Parts of the leading dimensions, outermost first, for segments of about ``rows`` rows."""
    total = math.prod(problem.output[:-1])
    wanted = total // max(1, int(rows))
    parts = []
    for limit in most:
        part = max(1, min(limit, wanted))
        parts.append(part)
        wanted = wanted // part
    return tuple(parts)


def cut(problem: Problem, pair: Pair, shape: Shape) -> tuple[Segment, ...]:
    """The segments of ``shape``; they cover dy's outputs exactly once.

    Leading dimensions are cut into parts that differ by at most one (the paper leaves the rest of
    the division to the last). Raises ValueError for parts that padding would leave without work.
    """
    for d, (parts, most) in enumerate(zip(shape.parts, most_parts(problem), strict=True)):
        if parts > most:
            raise ValueError(
                f"{parts} segments along dimension {d} of size {problem.output[d]} are smaller "
                f"than its padding {max(problem.padding[d])} plus one; at most {most} have work"
            )
    leading = [
        list(_parts(size, parts))
        for size, parts in zip(problem.output[:-1], shape.parts, strict=True)
    ]
    columns = list(_columns(pair, shape.units))
    segments = []
    for box in product(*leading):
        for kernel, start, width in columns:
            starts, sizes = zip(*box, (start, width), strict=True)
            segments.append(Segment(kernel, starts, sizes))
    return tuple(segments)


def _parts(size: int, parts: int) -> Iterator[tuple[int, int]]:
    for i in range(parts):
        start = i * size // parts
        yield start, (i + 1) * size // parts - start


def _columns(pair: Pair, units: int) -> Iterator[tuple[Kernel, int, int]]:
    r0 = pair.first.tile.r
    for at in range(0, pair.units, units):
        yield pair.first, at * r0, min(units, pair.units - at) * r0
    if pair.second is not None:
        yield pair.second, pair.units * r0, pair.rest * pair.second.tile.r
