"""What direct products on wgmma have in common, whose operands are multiplied as they lie: forward
and backward data, and filter gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from winolab.algorithm import Algorithm, Problem, Tile, direct
from winolab.arguments.epilogue import Epilogue
from winolab.arguments.words import plural
from winolab.device import Device
from winolab.gpu.families.axes import check_vectors
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import check_reach
from winolab.gpu.planner.request import Plan, Request
from winolab.options import KernelConfig
from winolab.ref.arithmetic.split import products

TILE = Tile(1, 1)


def arithmetic(precision: str) -> str:
    """What the reference calls products in 16 bits on wgmma, summed in FP32."""
    return f"{precision},accumulation=tensor_core:16:2:truncate"


def tf32_arithmetic(depth: int, taps: Sequence[int] = (), channels: int = 0) -> str:
    """The same of FP32's TF32 parts, three products of which the Tensor Core sums over so many
    channels or positions of a step, the small ones first, whose steps are added in FP32; those of
    ``channels`` begin anew with each of the taps."""
    sums = f"tensor_core:8:2:truncate:{intervals(depth, taps, channels)}"
    return f"fp32_split,product=tf32,scale=none,accumulation={sums},ahead={depth // 8}"


def intervals(depth: int, taps: Sequence[int], channels: int) -> str:
    """Products of two parts that steps of ``depth`` channels sum in turn, of several taps the last
    of each fewer: of 8 channels every tap's sum is added in FP32."""
    whole, rest = divmod(channels, depth)
    steps = [depth] * whole + [rest] if rest and math.prod(taps) > 1 else [depth]
    return "+".join(str(products(2) * n) for n in steps)


def sequential(precision: str) -> str:
    """What the reference calls products that threads add up one after another in FP32."""
    return "fp32" if precision == "fp32" else f"{precision},accumulation=sequential"


@dataclass(frozen=True)
class DirectCorrelation(BasePlan):
    """A plan of forward or backward data that transforms nothing."""

    predicted: float = field(default=0.0, kw_only=True)  # seconds
    epilogue: Epilogue | None = field(default=None, kw_only=True)
    points = "best"  # as of all plans; there is nothing to interpolate
    tile = TILE
    workspace = 0
    reads_filters_in_place = True  # with 16-byte aligned taps, channels contiguous

    kernel = "Γ1(1,1)"  # named as the papers'

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return direct()

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """None."""
        return self.algorithm.tiles

    @property
    def simulated(self: Plan) -> str:
        """What the reference calls this arithmetic."""
        return arithmetic(self.precision)

    def with_epilogue(self, epilogue: Epilogue) -> Self | None:
        """The plan whose kernels apply it as they store y."""
        return replace(self, epilogue=epilogue)


class FewChannels(DirectCorrelation):
    """A plan of layers of few channels, of which some are summed, or result, or make a group: one
    launch, whose blocks stay and copy what they multiply to shared memory."""

    reads_filters_in_place = False
    direction: str  # of the family's tiling

    def with_epilogue(self, epilogue: Epilogue) -> Self | None:
        """The plan whose kernel applies it as it stores y; None of backward data."""
        return super().with_epilogue(epilogue) if self.direction == "forward" else None

    def told(self: Plan, block: str, grid: tuple[int, int], work_tiles: int) -> str:
        """What is printed; ``block`` says what a block computes at once, ``grid`` how many blocks
        there are, of how many threads."""
        return "\n".join(
            [
                self.problem.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"block      {block}",
                f"policies   {self.config}",
                f"grid       {plural(grid[0], 'block')} of {grid[1]} threads, "
                f"{plural(work_tiles, 'work tile')}",
                f"memory     {max(self.shared().values())} B shared, no workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )


@dataclass(frozen=True)
class Tiling:
    """One filter gradient: what is computed, by which config, on what device."""

    problem: Problem
    gradient: Gradient
    precision: str
    out_dtype: str
    config: KernelConfig
    device: Device


@dataclass(frozen=True)
class DirectGradient(Tiling, BasePlan):
    """A plan that transforms nothing."""

    direction: str = field(default="backward_filter", kw_only=True)
    points: str = field(default="best", kw_only=True)  # there is nothing to interpolate
    tile: Tile = field(default=TILE, kw_only=True)

    @property
    def tiles(self) -> tuple[Tile]:
        """Tiles of the gradient."""
        return (self.tile,)

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        return arithmetic(self.precision)

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel."""
        return "Ω2(1,1)"

    def told(self: Plan, block: str, grid: list[str]) -> str:
        """What is printed; ``block`` says what a block sums of which positions, ``grid`` who sums
        which."""
        p = self.problem
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"block      {block}",
                f"policies   {self.config}",
                *grid,
                f"memory     {max(self.shared().values())} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )


def fitting(request: Request, products: str, vector: int, otherwise: str = "") -> Gradient:
    """The gradient of a request that such kernels serve.

    ``products`` names theirs, ``vector`` is the channels that they load at once, ``otherwise`` what
    serves others. Raises ValueError that says what does not fit.
    """
    request.need(request.device.wgmma, f"{products} need wgmma, which is 9.0's{otherwise}")
    if request.algorithm and request.algorithm.kind != "direct":
        raise ValueError(f"{products} do not compute {request.algorithm}")
    check_reach(request.problem)
    g = Gradient.of(request.problem, unit=False)
    check_vectors(request, (g.channels, g.out_channels), products, vector, otherwise)
    return g
