"""A depthwise problem as its kernels see it: sizes, strides and phases in three dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.algorithm import Problem
from winolab.gpu.families.axes import check_steps
from winolab.gpu.planner.correlation import check_reach, three

Three = tuple[int, int, int]


@dataclass(frozen=True)
class Depthwise:
    """y[o, c] = Σ_k x[o S + k D − p, c / m] w[c, k] and its gradients; m is the multiplier.

    Backward data has dy in x's place and dx in y's: of unit stride it is the same sum with taps
    backwards (``rotated``), else a sum of what is there (``gathered``). A filter gradient keeps
    the places of forward.
    """

    batch: int
    channels: int  # of y
    multiplier: int
    input: Three
    output: Three
    filter: Three
    padding: Three  # before the first element; may be negative
    stride: Three
    dilation: Three
    rotated: bool
    gathered: bool

    @classmethod
    def of(cls, problem: Problem, direction: str) -> Depthwise:
        """The sums that ``direction`` of ``problem`` has.

        Raises ValueError where groups are not as many as channels or numbers too large to count.
        """
        if not problem.depthwise:
            raise ValueError(
                "depthwise kernels need as many groups as input channels, not "
                f"{problem.groups} of {problem.in_channels}"
            )
        check_reach(problem)
        check_steps(problem)
        p, data = problem, direction == "backward_data"
        rotated = data and set(p.stride) == {1}
        padding = [lo for lo, _ in p.padding]
        if rotated:
            padding = [e - 1 - lo for e, lo in zip(p.extent, padding, strict=True)]
        return cls(
            p.batch,
            p.in_channels if data else p.out_channels,
            p.out_channels // p.groups,
            three(p.output if data else p.input, 1),
            three(p.input if data else p.output, 1),
            three(p.filter, 1),
            three(tuple(padding), 0),
            three(p.stride, 1),
            three(p.dilation, 1),
            rotated,
            data and not rotated,
        )

    @property
    def taps(self) -> int:
        """Taps of a channel's filter."""
        return math.prod(self.filter)

    @property
    def outputs(self) -> int:
        """Elements of y."""
        return self.batch * self.channels * math.prod(self.output)

    @property
    def inputs(self) -> int:
        """Elements of x."""
        of_one = self.batch * math.prod(self.input)
        if self.rotated or self.gathered:
            return of_one * self.channels * self.multiplier
        return of_one * self.channels // self.multiplier

    @property
    def positions(self) -> int:
        """Positions of y: the products of a filter gradient's element."""
        return self.batch * math.prod(self.output)

    def phases(self, dimension: int) -> int:
        """Every so many-th output meets inputs that others do not."""
        return 1 if self.gathered else self.dilation[dimension]

    def windows(self, dimension: int) -> tuple[int, int]:
        """Windows of strided backward data: the first input whose window begins in y, or would if
        there were one, and how many do."""
        pad, stride = self.padding[dimension], self.stride[dimension]
        first = pad // stride
        return first, (pad + self.output[dimension] - 1) // stride - first + 1
