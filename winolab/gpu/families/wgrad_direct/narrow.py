"""Filter gradients by direct products on wgmma, FP16 and BF16, of 64 output channels and few taps.

What columns.py is for more of both; here positions are laid end to end, so that a block reads
x and dy as they follow each other in memory. One launch computes every segment's share of the sum;
where there are several, a second one adds the shares up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from winolab.device import Device
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.wgrad import TYPES, Gradient, Timing, choose, parameters, reduce
from winolab.gpu.families.wgrad_direct.common import (
    CONSUMERS,
    TILE,
    DirectConfig,
    DirectGradient,
    blocks_of_row,
    constants,
    fitting,
    matrix_seconds,
    read,
    shapes,
)
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.request import DTYPES, Request, Sum

VECTOR = 8  # channels of a copy


@dataclass(frozen=True)
class Config(DirectConfig):
    """The compile-time shape of the kernel: policies of narrow.cuh, by its names."""

    n: int  # taps of a filter row that share a stage of x
    bi: int  # input channels of a block
    bo: int  # output channels of a block: 64, or 64 of each warpgroup
    stages: int
    kc: int  # positions of a stage
    producers: int = 128  # threads that copy

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory."""
        rows = self.kc + (8 if self.n > 1 else 0)
        stage = 128 * (self.bo // 64 * self.kc + self.bi // 64 * rows)
        return self.stages * (stage + 16) + 3 * 16 * self.producers

    @property
    def halves(self) -> int:
        """Warpgroups that have a half of the positions each, where taps do not divide by two."""
        return 2 if self.bo // 64 * self.n % 2 else 1

    def __str__(self) -> str:
        block = f"{self.bo}x{self.bi}x{self.kc} taps={self.n} stages={self.stages}"
        return f"{block} producers={self.producers}"


# Block shapes that columns.py does not beat. Stages of 128 positions are up to 15 % faster than
# twice as many of 64; more producers are 5 to 11 % faster where copies bind.
CONFIGS = (
    Config(3, 64, 64, 6, 128, 256),
    Config(4, 64, 64, 6, 128, 256),
)


@dataclass(frozen=True)
class WgradNarrowPlan(DirectGradient):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    config: Config
    segments: int
    blocks: int  # of a segment
    workspace: int  # bytes: the segments' sums, if there are several
    predicted: float  # seconds

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed."""
        of = self.segments * self.config.halves
        return (Sum(1.0, self.gradient.products / of),)

    @property
    def pitch(self) -> int:
        """Positions of a row of dy."""
        return self.gradient.output[2] + self.config.n - 1

    def __str__(self) -> str:
        stage = f"{self.config.kc} positions a stage"
        grid = [f"grid       {self.blocks} blocks in each of {self.segments} segments"]
        return self.told(stage, grid, self.workspace, self.predicted)

    def source(self) -> str:
        """The translation unit of ``winolab_wgrad_direct_narrow`` and ``winolab_reduce``."""
        return source(self.precision, self.out_dtype, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_wgrad_direct_narrow": self.config.shared_memory, "winolab_reduce": 0}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        g, v = self.gradient, self.config
        params = parameters(
            g,
            (a, b, out),
            workspace,
            (v.bi, v.bo, v.n),
            self.segments,
            self.pitch,
            self.blocks,
        )
        grid, threads = (self.blocks * self.segments, 1, 1), CONSUMERS + v.producers
        kernels["winolab_wgrad_direct_narrow"](grid, threads, params)
        if self.segments > 1:
            early = self.device.early_launches
            reduce(kernels["winolab_reduce"], g, out, workspace, self.segments, early)


@lru_cache(maxsize=64)
def source(precision: str, out_dtype: str, config: Config) -> str:
    """One config's translation unit: ``winolab_wgrad_direct_narrow`` and ``winolab_reduce``."""
    types = {"INPUT": TYPES[DTYPES[precision]], "OUTPUT": TYPES[out_dtype]}
    types |= {"BF16": int(precision == "bf16")}
    return unit(
        f"Ω2(1,1) {precision}, {config}",
        constants(config, **types, FIRST=0),
        {},
        ("wgrad_direct/narrow",),
    )


def plans(request: Request) -> Iterator[WgradNarrowPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    g = fitting(request, "direct products", VECTOR)
    for shape in shapes(request, g, Config, CONFIGS):
        yield _plan(request, g, shape)


def timing(
    device: Device, g: Gradient, v: Config, blocks: int, model: DeviceModel = MODEL
) -> Timing:
    """What a unit takes: products of a position, and its copies."""
    m = model.wgrad_direct
    products = m.products * v.bi * v.bo * v.n + m.copied_narrow * (v.bi + v.bo) * device.matrix
    unit = g.met * matrix_seconds(device, products)
    start = m.start / device.clock
    return Timing(blocks, device.multiprocessors, unit, start, v.kc, device=device, model=model)


def seconds(plan: WgradNarrowPlan, model: DeviceModel = MODEL) -> float:
    """Predicted time of a call."""
    g, v = plan.gradient, plan.config
    of = timing(plan.device, g, v, plan.blocks, model)
    main = of.whole(g.units(TILE, plan.pitch), plan.segments, 4 * g.weights)
    return max(main, read(plan.problem, plan.precision, plan.device, model))


def _plan(request: Request, g: Gradient, v: Config) -> WgradNarrowPlan:
    problem, device = request.problem, request.device
    blocks = blocks_of_row(g, v) * g.filter[0] * g.filter[1]
    units = g.units(TILE, g.output[2] + v.n - 1)
    limit = request.workspace_limit
    segments = choose(g, units, timing(device, g, v, blocks), limit, first=False)
    return WgradNarrowPlan(
        problem,
        g,
        request.precision,
        request.written,
        v,
        device,
        segments.count,
        blocks,
        segments.workspace,
        max(segments.seconds, read(problem, request.precision, device)),
    )
