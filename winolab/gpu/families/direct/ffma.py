"""Direct forward and backward data with any stride and dilation on FFMA units.

What other kernels of FP32 do not serve, however its channels and arrays lie; and what stands behind
split products there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from winolab.algorithm import Algorithm, Problem, Tile, direct
from winolab.device import Device
from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import geometry
from winolab.gpu.families.direct.axes import Axis, axes, counted
from winolab.gpu.params import MOST, Kernels, Params, View, uncounted
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import BasePlan, FallbackLaunches, Request
from winolab.options import KernelConfig

ARCHITECTURE = (8, 0)
THREADS, POSITIONS, CHANNELS, DEPTH = 256, 64, 64, 16  # as ffma.cuh has them
PARAMS = layout("DirectFfmaParams", "direct/ffma")
# Seconds of a launch; an FFMA unit's share of its rate.
LAUNCH, SHARE = 4e-6, 0.25


@dataclass(frozen=True)
class Config(KernelConfig):
    """The one block shape that the kernel has."""

    def __str__(self) -> str:
        return f"{POSITIONS}x{CHANNELS}x{DEPTH}"


@dataclass(frozen=True)
class DirectFfmaPlan(BasePlan):
    """One call: what is computed, on what grid, at what cost."""

    direction: str
    problem: Problem
    correlation: Correlation
    device: Device
    predicted: float = 0.0  # seconds

    kernel = "direct"
    precision = simulated = "fp32"
    out_dtype = "float32"
    points = "best"  # as of all plans; there is nothing to interpolate
    tile = Tile(1, 1)
    tiles = ()
    workspace = 0
    config = Config()

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return direct()

    @property
    def fallback_launches(self) -> FallbackLaunches | None:
        return self

    @property
    def axes(self) -> tuple[Axis, Axis, Axis]:
        """Depth, height and width."""
        return axes(self.correlation)

    @property
    def blocks_n(self) -> int:
        """Blocks of a phase's outputs."""
        return -(-self.correlation.batch * math.prod(a.outputs for a in self.axes) // POSITIONS)

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // CHANNELS)

    @property
    def grid(self) -> int:
        """Blocks: of all phases."""
        return self.blocks_n * self.blocks_m * math.prod(a.phases for a in self.axes)

    def __str__(self) -> str:
        p = self.problem
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} stride {p.stride} dilation "
                f"{p.dilation} padding {p.padding}",
                f"kernel     {self.kernel} {self.precision} on FFMA units, nothing transformed",
                f"policies   {self.config}",
                f"grid       {self.grid} blocks of {THREADS} threads",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of its kernel."""
        return source(self.correlation.rotated)

    def shared(self) -> dict[str, int]:
        """Its kernel, which has no dynamic shared memory."""
        return {"winolab_direct_ffma": 0}

    def launch(
        self,
        kernels: Kernels,
        a: View,
        b: View,
        out: View,
        workspace: int,
        index: int,
        wanted: int = 0,
    ) -> None:
        """Compute all groups on the current stream; ``wanted``: the address of flags that have to
        ask for it (fallback.cuh), or 0."""
        for group in range(self.correlation.groups):
            params = self.params(group, a, b, out, wanted)
            kernels["winolab_direct_ffma"]((self.grid, 1, 1), THREADS, params)

    def params(self, group: int, x: View, w: View, y: View, wanted: int) -> Params:
        """Parameters of a group's convolution."""
        c = self.correlation
        address, m, channel, *taps = geometry.filter_map(c, w, group, 4)
        params = PARAMS.pack(
            x.address + 4 * group * c.channels,
            address,
            y.address + 4 * group * c.out_channels,
            wanted,
            *x.strides[:3],
            *y.strides[:3],
            m,
            channel,
            *taps,
            x.strides[3],
            y.strides[3],
            c.batch,
            *c.input,
            *c.output,
            c.channels,
            c.out_channels,
            self.blocks_m,
            self.blocks_n,
            *c.padding,
            *c.filter,
        )
        return Params.of(params, *(a.params() for a in self.axes))


@lru_cache(maxsize=2)
def source(rotated: bool) -> str:
    """The translation unit of forward or of backward data."""
    constants = {"ROTATED": int(rotated)}
    return unit("direct fp32 on FFMA units", constants, {}, ("direct/ffma",))


def plans(request: Request) -> Iterator[DirectFfmaPlan]:
    """The one plan. Raises ValueError where it cannot run, and says why."""
    device, algorithm, problem = request.device, request.algorithm, request.problem
    if device.compute_capability < ARCHITECTURE:
        raise request.unfit("the kernels need {}.{} or later".format(*ARCHITECTURE))
    if algorithm and algorithm.kind != "direct":
        return  # others say what computes it
    if problem.unit:
        return  # gamma_ffma's direct products are faster
    c = counted(problem, request.direction)
    if c.empty or not c.channels or 0 in c.input:
        raise ValueError("direct products need something to sum")
    found = DirectFfmaPlan(request.direction, problem, c, device)
    for name, value in (("blocks", found.grid), ("outputs", found.blocks_n * POSITIONS)):
        if value > MOST:
            raise uncounted(f"the number of {name} of direct products", value)
    steps = -(-c.channels // DEPTH) * DEPTH * math.prod(a.most for a in found.axes)
    waves = -(-found.grid // device.multiprocessors)
    seconds = waves * POSITIONS * CHANNELS * steps / (SHARE * device.lanes * device.clock)
    yield replace(found, predicted=c.groups * (LAUNCH + seconds))
