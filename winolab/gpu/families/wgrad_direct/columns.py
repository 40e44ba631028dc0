"""Filter gradients by direct products on wgmma, FP16 and BF16, by columns: plans, source, launch.

Nothing is transformed: x and dy are multiplied as they lie. That is faster than Ωα(n,r) where
memory bounds its transforms, where Φ or the channels are few, and all that a small workspace
leaves. One launch computes what a block computes alone, and parts of what several share; a second
one adds these up. Where 64 channels of dy meet few taps narrow.py is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from winolab.device import Device
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.wgrad import TYPES, Gradient
from winolab.gpu.families.wgrad_direct.chunks import (
    CONSTANTS,
    KC,
    PRODUCERS,
    SOURCE,
    WORK,
    Columns,
    Cost,
    Shares,
    cut,
    gather,
    packed,
    taken,
    told,
)
from winolab.gpu.families.wgrad_direct.common import (
    CONSUMERS,
    TILE,
    DirectConfig,
    DirectGradient,
    constants,
    fitting,
    matrix_seconds,
    operands,
    read,
    shapes,
)
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.request import DTYPES, Request, Sum

VECTOR = 8  # channels of a copy


@dataclass(frozen=True)
class Config(DirectConfig):
    """The compile-time shape of the kernel: policies of columns.cuh, by its names."""

    n: int  # taps of a filter row that share columns of x
    bi: int  # input channels of a block
    bo: int  # output channels of a block: 64, or 64 of each warpgroup
    stages: int  # columns on their way

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory."""
        slots = self.stages + 2 * (self.n - 1)  # column_sweep.cuh
        size = 2 * KC * (self.stages * self.bo + slots * self.bi)
        return size + 16 * self.stages + 2 * WORK + SOURCE

    def __str__(self) -> str:
        return f"{self.bo}x{self.bi} columns, taps={self.n} stages={self.stages}"


CONFIGS = (
    Config(1, 256, 128, 4),
    Config(2, 128, 128, 5),
    Config(3, 128, 128, 4),
    Config(3, 64, 128, 8),
    Config(4, 64, 128, 7),
    Config(5, 64, 128, 6),
    Config(6, 64, 128, 6),
    Config(8, 64, 64, 6),
)


@dataclass(frozen=True)
class WgradColumnsPlan(DirectGradient):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    config: Config
    columns: Columns
    shares: Shares
    predicted: float  # seconds

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed: by work tiles alone, and by those that blocks share."""
        s, products = self.shares, self.gradient.products
        each = ((s.alone, 1.0), (s.shared, s.sharing / max(1, s.shared)))
        return tuple(Sum(n / s.work_tiles, products / blocks) for n, blocks in each if n)

    @property
    def workspace(self) -> int:
        """Bytes of parts of sums, where blocks share some."""
        return self.shares.workspace

    def __str__(self) -> str:
        grid = told(self.columns, self.shares)
        return self.told(f"columns of {KC} positions", grid, self.workspace, self.predicted)

    def source(self) -> str:
        """The translation unit of its two kernels."""
        return source(self.precision, self.out_dtype, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {
            "winolab_wgrad_direct_columns": self.config.shared_memory,
            "winolab_wgrad_direct_gather": 0,
        }

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        g, v = self.gradient, self.config
        params = packed(g, (a, b, out), workspace, v, self.columns, self.shares)
        grid, threads = (self.shares.grid, 1, 1), CONSUMERS + PRODUCERS
        kernels["winolab_wgrad_direct_columns"](grid, threads, params)
        gather(kernels, v, self.shares, params, self.device)


@lru_cache(maxsize=64)
def source(precision: str, out_dtype: str, config: Config) -> str:
    """One config's translation unit: ``winolab_wgrad_direct_columns``, ``…_gather``."""
    types = {"INPUT": TYPES[DTYPES[precision]], "OUTPUT": TYPES[out_dtype]}
    types |= {"BF16": int(precision == "bf16")}
    return unit(
        f"Ω2(1,1) {precision}, {config}",
        constants(config, **types, **CONSTANTS),
        {},
        ("wgrad_direct/columns",),
    )


def plans(request: Request) -> Iterator[WgradColumnsPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    g = fitting(request, "direct products", VECTOR)
    for shape in shapes(request, g, Config, CONFIGS):
        yield _plan(request, g, shape)


def cost(device: Device, v: Config, found: Columns, model: DeviceModel = MODEL) -> Cost:
    """What a block's stages take: products of a column, and its copies to registers and memory."""
    m = model.wgrad_direct
    products = m.products * v.n * v.bi * v.bo + m.copied * (v.bi + v.bo) * device.matrix
    brought = 1 + m.brought * (v.n - 1) / found.pitch
    stage = matrix_seconds(device, products * KC * brought)
    return Cost(stage, m.part / device.clock, 4 * v.n * v.bi * v.bo, device, model)


def seconds(plan: WgradColumnsPlan, model: DeviceModel = MODEL) -> float:
    """Predicted time of a call."""
    of = cost(plan.device, plan.config, plan.columns, model)
    main = taken(plan.columns, plan.shares, of)
    return max(main, read(plan.problem, plan.precision, plan.device, model))


def _plan(request: Request, g: Gradient, v: Config) -> WgradColumnsPlan:
    g.units(TILE, g.output[2])  # as many positions as can be counted
    problem, precision, device = request.problem, request.precision, request.device
    # Blocks may be at different places of x and dy where these stay in L2.
    cached = operands(problem, precision) <= MODEL.wgrad_direct.cached * device.l2
    limit = request.workspace_limit
    found, shares = cut(g, v, device, lambda found: cost(device, v, found), limit, cached)
    predicted = max(shares.seconds, read(problem, precision, device))
    return WgradColumnsPlan(
        problem, g, precision, request.written, v, device, found, shares, predicted
    )
