"""Dimensions of direct products with stride and dilation: phases of outputs, taps of a phase."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from winolab.algorithm import Problem
from winolab.gpu.codegen.structs import layout
from winolab.gpu.params import MOST, Params, uncounted
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import Request

PARAMS = layout("DirectAxis", "axes")
MOST_STEP = 8  # that a tensor copy takes along a dimension, CUDA driver API
MOST_SPAN = 256  # elements that a copy's box may span
MOST_POSITIONS = MOST - (1 << 14)  # of a row, so that its last work tile is counted, too
MOST_STRIDE = 1 << 20  # times dilation, so that 32 bits count places


def pointwise(problem: Problem) -> bool:
    """Whether every output is of one pixel, and pixels follow each other as outputs do."""
    ones = {*problem.filter, *problem.stride, problem.groups} == {1}
    return ones and not any(map(any, problem.padding))


def check_pointwise(problem: Problem, serves: str) -> None:
    """Raises ValueError, which begins with who ``serves``, for what is not ``pointwise``."""
    if not pointwise(problem):
        raise ValueError(
            f"{serves} filters of one tap with stride 1, without padding and groups, not "
            f"{problem.filter} with stride {problem.stride}, padding {problem.padding} and groups "
            f"{problem.groups}"
        )


@dataclass(frozen=True)
class Axis:
    """One dimension: ``taps`` of a filter, ``pad`` before the first element, ``size`` outputs.

    Backward data of stride s has s phases: outputs s apart, which meet taps ``tap_step``
    apart, places of dy that are ``step`` apart.
    """

    taps: int
    pad: int
    stride: int
    dilation: int
    size: int
    rotated: bool

    @property
    def phases(self) -> int:
        """Phases of outputs."""
        return self.stride if self.rotated else 1

    @property
    def tap_step(self) -> int:
        """From one tap of a phase to the next."""
        return self.stride // self._common if self.rotated else 1

    @property
    def step(self) -> int:
        """From where a tap meets x to where the next one does."""
        return self.dilation // self._common if self.rotated else self.dilation

    @property
    def _common(self) -> int:
        return math.gcd(self.stride, self.dilation)

    @property
    def outputs(self) -> int:
        """Outputs of a phase, at most."""
        return -(-self.size // self.phases)

    @property
    def longest(self) -> int:
        """Outputs of a block: those that one copy reaches."""
        if self.rotated or self.stride == 1:
            return MOST_SPAN
        return (MOST_SPAN - 1) // self.stride + 1 if self.stride <= MOST_STEP else 1

    @property
    def of_phases(self) -> tuple[tuple[int, int], ...]:
        """Taps, and how many phases have so many: the most first, as the kernel has them."""
        each, more = divmod(self.taps, self.tap_step)
        found = (each + 1, more), (each, self.tap_step - more), (0, self.phases - self.tap_step)
        return tuple((taps, count) for taps, count in found if count)

    @property
    def most(self) -> int:
        """Taps of a phase, at most."""
        return -(-self.taps // self.tap_step)

    def params(self) -> Params:
        """What kernels are told of it."""
        return PARAMS.pack(
            self.stride, self.dilation, self.tap_step, self.step, self.phases, self.outputs
        )


class Phased:
    """What follows from a call's correlation, of families that walk over phases of outputs."""

    correlation: Correlation

    @property
    def axes(self) -> tuple[Axis, Axis, Axis]:
        """Depth, height and width."""
        return axes(self.correlation)

    @property
    def positions(self) -> int:
        """Positions of a phase of outputs."""
        return self.correlation.batch * math.prod(a.outputs for a in self.axes)

    @property
    def phases(self) -> int:
        """Phases of outputs."""
        return math.prod(a.phases for a in self.axes)

    @property
    def met(self) -> int:
        """Elements of x that taps meet."""
        c = self.correlation
        sizes = zip(c.input, self.axes, strict=True)
        place = math.prod(n if a.rotated else min(n, a.size * a.taps) for n, a in sizes)
        return c.batch * c.groups * c.channels * place


@lru_cache(maxsize=4096)
def axes(c: Correlation) -> tuple[Axis, Axis, Axis]:
    """Depth, height and width."""
    parts = zip(c.filter, c.padding, c.stride, c.dilation, c.output, strict=True)
    depth, height, width = (Axis(*part, c.rotated) for part in parts)
    return depth, height, width


def flattened(c: Correlation) -> bool:
    """Whether single taps meet all positions in order, which 32 bits count."""
    in_order = c.unit and {*c.filter} == {1} and not any(c.padding) and c.input == c.output
    return in_order and c.batch * math.prod(c.output) <= MOST_POSITIONS


def row(c: Correlation) -> Correlation:
    """The same of all positions as one row: single taps do not ask where rows end."""
    return replace(
        c,
        batch=1,
        input=(1, 1, c.batch * math.prod(c.input)),
        output=(1, 1, c.batch * math.prod(c.output)),
    )


def check_room(request: Request, size: int) -> None:
    """Raise ValueError where a config takes more shared memory than a block may have."""
    if size > (room := request.device.shared_memory):
        raise ValueError(f"{request.config} needs {size} B of {room} B of shared memory")


def check_steps(problem: Problem) -> None:
    """Raise ValueError for strides that 32 bits do not count."""
    if max(map(math.prod, zip(problem.stride, problem.dilation, strict=True))) > MOST_STRIDE:
        raise ValueError(
            f"direct products take strides × dilation up to {MOST_STRIDE}, not stride "
            f"{problem.stride} with dilation {problem.dilation}"
        )


def counted(problem: Problem, direction: str) -> Correlation:
    """The correlation that computes it. Raises ValueError for strides, and for outputs of phases
    behind the last one of a block, that 32 bits do not count."""
    c = Correlation.of(problem, direction, unit=False)
    check_steps(problem)
    ends = (n + (MOST_SPAN + 2) * s for n, s in zip(c.output, c.stride, strict=True) if s > 1)
    if c.rotated and (most := max(ends, default=0)) > MOST:
        raise uncounted("what blocks of strided outputs reach along a dimension", most)
    return c


def check_vectors(
    request: Request, channels: tuple[int, int], what: str, vector: int, otherwise: str = ""
) -> None:
    """Raise ValueError for groups whose channels, and for addresses that, copies of ``vector``
    channels do not take; ``otherwise``: what serves others."""
    if any(n % vector for n in channels):
        few, more = channels
        raise ValueError(
            f"{what} need groups of multiples of {vector} channels, not {few} and {more}{otherwise}"
        )
    if not request.aligned:
        raise ValueError(f"{what} need pixels that lie 16-byte aligned: copy the arrays{otherwise}")


def best_patch(
    sizes: tuple[int, int], outputs: int, together: int, met: Callable[[int, int], int]
) -> tuple[int, int]:
    """Rows and columns of patches of about so many of a map's outputs that need the fewest products
    of ``together`` outputs, then the fewest pixels; ``met``: pixels along one of both dimensions
    that so many outputs need."""

    def worth(shape: tuple[int, int]) -> tuple[int, int]:
        count = math.prod(-(-size // n) for size, n in zip(sizes, shape, strict=True))
        pixels = math.prod(met(i, n) for i, n in enumerate(shape))
        return count * -(-math.prod(shape) // together), count * pixels

    return min(_patches(*sizes, outputs), key=worth)


def _patches(height: int, width: int, outputs: int) -> Iterator[tuple[int, int]]:
    """Rows and columns of patches, none much larger than others."""
    for columns in (8, 16, 32, 64, 128, 256):
        wide = -(-width // -(-width // columns))
        high = min(height, max(1, outputs // wide))
        rows = -(-height // -(-height // high))
        if wide <= outputs:
            yield rows, wide
