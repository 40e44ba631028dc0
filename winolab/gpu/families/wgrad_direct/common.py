"""What direct filter gradients on wgmma share: what they need, what they say, what they read."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from winolab.algorithm import Problem, Tile
from winolab.device import Device
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.planner.device_model import MODEL, DeviceModel, copying
from winolab.gpu.planner.request import DTYPES, ITEMSIZE, BasePlan, Request
from winolab.options import KernelConfig

ARCHITECTURE = (9, 0)  # wgmma: no other compute capability has it
CONSUMERS = 256  # threads of a block that multiply, two warpgroups
TILE = Tile(1, 1)


class DirectConfig(KernelConfig):
    """A block of ``bo`` output and ``bi`` input channels, and of ``n`` taps of a filter row."""

    n: int
    bi: int
    bo: int

    @property
    @abstractmethod
    def shared_memory(self) -> int:
        """Bytes of a block."""


C = TypeVar("C", bound=DirectConfig)


@dataclass(frozen=True)
class DirectGradient(BasePlan):
    """One call: what is computed, by which kernel, on what device."""

    problem: Problem
    gradient: Gradient
    precision: str
    out_dtype: str
    config: DirectConfig
    device: Device
    direction: str = field(default="backward_filter", kw_only=True)
    points: str = field(default="best", kw_only=True)
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

    def told(self, stage: str, grid: list[str], workspace: int, predicted: float) -> str:
        """What is printed; ``stage`` says what positions a block sums, ``grid`` who sums which."""
        p, v = self.problem, self.config
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"block      {v.bo} × {v.bi} channels of {v.n} taps, {stage}",
                f"policies   {v}",
                *grid,
                f"memory     {v.shared_memory} B shared, {workspace} B workspace",
                f"predicted  {predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )


def fitting(request: Request, products: str, vector: int, otherwise: str = "") -> Gradient:
    """The gradient of a request that such kernels serve.

    ``products`` names theirs, ``vector`` is the channels that they load at once, ``otherwise`` what
    serves others. Raises ValueError that says what does not fit.
    """
    if request.device.compute_capability != ARCHITECTURE:
        raise request.unfit(f"{products} without a workspace need wgmma, which is 9.0's{otherwise}")
    if request.algorithm and request.algorithm.kind != "direct":
        raise ValueError(f"{products} do not compute {request.algorithm}")
    g = Gradient.of(request.problem)
    if not request.aligned or g.channels % vector or g.out_channels % vector:
        raise ValueError(
            f"{products} without a workspace need pixels that lie 16-byte aligned and "
            f"multiples of {vector} channels, not {g.channels} and {g.out_channels}{otherwise}"
        )
    return g


def shapes(request: Request, g: Gradient, kind: type[C], configs: Iterable[C]) -> Iterator[C]:
    """The block shapes to plan: the one asked for, or those of which one tap at most is in vain."""
    if config := request.config_of(kind):
        yield config
    else:
        yield from (v for v in configs if v.n <= g.filter[2] + 1)


def constants(config: Any, **more: int) -> dict[str, int]:
    """The constants of a translation unit: gradient_scheduler.cuh's without transforms, ``more``,
    the block shape.
    """
    fields = {name.upper(): value for name, value in asdict(config).items()}
    return {"R": 1, "ALPHA": 1, "WRAP": 0, **more, **fields}


def matrix_seconds(device: Device, products: float) -> float:
    """Seconds in which a multiprocessor's Tensor Cores make so many products at least."""
    return products / device.matrix / device.clock


def blocks_of_row(g: Gradient, v: DirectConfig) -> int:
    """Blocks of channels and taps for one row of the filter."""
    tiles = -(-g.channels // v.bi) * -(-g.out_channels // v.bo) * g.groups
    return tiles * -(-g.filter[2] // v.n)


def operands(problem: Problem, precision: str) -> int:
    """Bytes of x and dy."""
    return ITEMSIZE[DTYPES[precision]] * (math.prod(problem.x_shape) + math.prod(problem.y_shape))


def read(problem: Problem, precision: str, device: Device, model: DeviceModel = MODEL) -> float:
    """Seconds that it takes to read x and dy once."""
    return copying(device, operands(problem, precision), model)
