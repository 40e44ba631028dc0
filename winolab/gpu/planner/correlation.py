"""What forward and backward data are: the same sum over taps and channels, which Γ computes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from winolab.algorithm import Algorithm, Problem, winograd
from winolab.gpu.params import MOST, uncounted
from winolab.points import shortened

CORRELATIONS = ("forward", "backward_data")
# How Tensor Cores' transforms are scaled: rows of G of one size spare the 16-bit parts exponents.
SCALING = "filter"


def scaling(simulated: str) -> str | None:
    """Scaling of a correlation's transforms, by what the reference calls its arithmetic."""
    return None if simulated.partition(",")[0] == "fp32" else SCALING


@dataclass(frozen=True)
class Correlation:
    """y[m] = Σ_c x[c] ⋆ w[m, c] per group, always three spatial dimensions.

    Backward data is one too: x is dy, channels swap, the filter is rotated and the padding is
    (r − 1) d − p, which may be negative. Tap t meets output o at place o s − padding + t d of x;
    of backward data at place (o − padding + t d) / s, where that is whole.
    """

    batch: int
    groups: int
    channels: int  # of a group, summed over
    out_channels: int  # of a group
    input: tuple[int, int, int]
    output: tuple[int, int, int]
    filter: tuple[int, int, int]
    padding: tuple[int, int, int]  # before the first element
    rotated: bool
    stride: tuple[int, int, int] = (1, 1, 1)  # the problem's
    dilation: tuple[int, int, int] = (1, 1, 1)

    @classmethod
    def of(cls, problem: Problem, direction: str, *, unit: bool = True) -> Correlation:
        """The correlation that computes ``direction`` of ``problem``.

        ``unit``: raise ValueError for strides and dilation, which few kernels serve; without it
        for those that kernels do not count.
        """
        if direction not in CORRELATIONS:
            raise ValueError(f"direction {direction!r}; expected one of {', '.join(CORRELATIONS)}")
        if unit:
            check_unit(problem)
        else:
            check_reach(problem)
        pad = tuple(lo for lo, _ in problem.padding)
        channels, out_channels = problem.in_channels, problem.out_channels
        input_, output = problem.input, problem.output
        if direction == "backward_data":
            pad = tuple(e - 1 - p for e, p in zip(problem.extent, pad, strict=True))
            channels, out_channels = out_channels, channels
            input_, output = output, input_
        return cls(
            problem.batch,
            problem.groups,
            channels // problem.groups,
            out_channels // problem.groups,
            three(input_, 1),
            three(output, 1),
            three(problem.filter, 1),
            three(pad, 0),
            direction == "backward_data",
            three(problem.stride, 1),
            three(problem.dilation, 1),
        )

    @property
    def unit(self) -> bool:
        """Whether stride and dilation are 1."""
        return {*self.stride, *self.dilation} == {1}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute."""
        return 0 in (self.batch, self.out_channels, *self.output)

    @property
    def flops(self) -> int:
        """Operations of direct convolution, an FMA being two."""
        scattered = self.rotated and not self.unit  # the products are of dy's positions
        return (
            2
            * self.batch
            * self.groups
            * math.prod(self.input if scattered else self.output)
            * math.prod(self.filter)
            * self.channels
            * self.out_channels
        )


def check_unit(problem: Problem) -> None:
    """Raise ValueError for strides and dilation, and as ``check``."""
    check(problem)
    if not problem.unit:
        raise strided(problem)


TRANSFORMS = "the CUDA kernels that transform"  # what refusals of strides begin with


def strided(problem: Problem) -> ValueError:
    """What a family raises for strides and dilation that none of its kernels serves."""
    return ValueError(
        f"{TRANSFORMS} need stride 1 and dilation 1, not stride "
        f"{problem.stride} and dilation {problem.dilation}: use algorithm 'direct', or name none; "
        "NumPy arrays run on the reference, which has both"
    )


def check_reach(problem: Problem) -> None:
    """Raise ValueError for strides, dilation and what filters reach that kernels do not count, and
    as ``check``."""
    check(problem)
    for size, extent, ends in zip(problem.input, problem.extent, problem.padding, strict=True):
        reach = size + extent + sum(map(abs, ends))
        if reach > MOST:
            raise uncounted("what a filter reaches along a dimension", reach)


def check(problem: Problem, algorithm: Algorithm | None = None) -> None:
    """Raise ValueError for dimensions that only the reference serves, for sizes that kernels do not
    count and for an algorithm with more states than they have."""
    if algorithm:
        _check_minimal(algorithm)
    if problem.ndim > 3:
        raise ValueError(
            f"{problem.ndim} spatial dimensions; the CUDA kernels have up to 3; NumPy arrays run "
            "on the reference, which has any number"
        )
    largest = max(*problem.x_shape, *problem.w_shape, *problem.y_shape)
    if largest > MOST:
        raise uncounted("an array's size", largest)
    for name in ("stride", "dilation"):
        if (most := max(getattr(problem, name))) > MOST:
            raise ValueError(
                f"the {name} is {most}, and the CUDA kernels count to {MOST}: NumPy arrays run on "
                "the reference, which has any"
            )


def _check_minimal(algorithm: Algorithm) -> None:
    """Raise ValueError for pieces' tiles of more states than every kernel has; of tiles that are
    named to it a family says so itself."""
    for tile in algorithm.tiles if algorithm.in_pieces else ():
        if not tile.minimal:
            raise ValueError(
                f"{shortened(str(algorithm))}: {tile} has {tile.alpha} states, the CUDA kernels "
                f"n + r - 1 = {tile.inputs}; name points alone, or give NumPy arrays"
            )


def unserved(algorithm: Algorithm) -> ValueError:
    """What the families of Γ raise for what none of them runs."""
    if algorithm.kind == "winograd" and not algorithm.scaling:
        fused = winograd((2, 2), (3, 3))
        units = f"only Tensor Cores of 9.0 run {algorithm}, and FFMA units {fused}"
        if algorithm == fused:
            units = f"only Tensor Cores and FFMA units of 9.0 run {fused}"
        return ValueError(f"{units}; other GPUs run gamma")
    return ValueError(
        "the CUDA kernels run gamma and direct algorithms, on 9.0 winograd too, all without "
        f"scaling, not {algorithm}, which NumPy arrays run on the reference"
    )


class Dimensions(Protocol):
    """What a kernel sees of a problem along depth, height and width."""

    @property
    def filter(self) -> tuple[int, int, int]: ...
    @property
    def input(self) -> tuple[int, int, int]: ...
    @property
    def output(self) -> tuple[int, int, int]: ...
    @property
    def padding(self) -> tuple[int, int, int]: ...


def without_depth(of: Dimensions) -> bool:
    """Whether kernels of two dimensions compute it. The padding is what lies before the first
    element: what lies behind the last one makes outputs, too."""
    return (of.filter[0], of.input[0], of.output[0], of.padding[0]) == (1, 1, 1, 0)


def three(values: tuple[int, ...], fill: int) -> tuple[int, int, int]:
    """Values of up to three spatial dimensions, filled up in front."""
    depth, height, width = (fill,) * (3 - len(values)) + tuple(values)
    return depth, height, width
