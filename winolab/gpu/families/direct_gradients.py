"""What direct filter gradients on wgmma have in common: x and dy are multiplied as they lie."""

from __future__ import annotations

from dataclasses import dataclass, field

from winolab.algorithm import Problem, Tile
from winolab.device import Device
from winolab.gpu.families.axes import check_vectors
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import check_reach
from winolab.gpu.planner.request import Plan, Request
from winolab.options import KernelConfig

TILE = Tile(1, 1)


@dataclass(frozen=True)
class Tiling:
    """One call: what is computed, by which config, on what device."""

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
        return f"{self.precision},accumulation=tensor_core:16:2:truncate"

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
