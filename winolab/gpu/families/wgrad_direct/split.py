"""Filter gradients by direct products of split FP32 data on wgmma: plans, source and launch.

What columns.py is for 16 bits: nothing is transformed, and the workspace holds no more than
headers and parts of sums, where Ωα(n,r) takes 1.8 times the data. Two launches sample x and dy for
their scales; one computes and checks what a block computes alone (fallback.cuh), and parts of
what several share; where there are any, another one adds these up; and where results are 0, the
last one scans x and dy for numbers that vanished.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import scale
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.families.wgrad_direct.chunks import (
    CONSTANTS,
    KC,
    PRODUCERS,
    SOURCE,
    WORK,
    Columns,
    Cost,
    cut,
    gather,
    packed,
    taken,
)
from winolab.gpu.families.wgrad_direct.columns import WgradColumnsPlan
from winolab.gpu.families.wgrad_direct.common import (
    CONSUMERS,
    TILE,
    DirectConfig,
    constants,
    fitting,
    matrix_seconds,
    operands,
    read,
    shapes,
)
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.device_model import MODEL, DeviceModel, overlapped
from winolab.gpu.planner.request import Request
from winolab.ref.algebra.transforms import transforms
from winolab.ref.arithmetic import split

VECTOR = 4  # channels of a load
SHARP = 2  # the exponent of what overlaps in a stage
HEADERS = 2 * scale.HEADER  # bytes at the start of the workspace: x's, with the flags, and dy's

SPLIT_PARAMS = layout("SplitParams", "wgrad_direct/split_stage")  # behind column_sweep.cuh's


@dataclass(frozen=True)
class Config(DirectConfig):
    """The compile-time shape of the kernel: policies of split.cuh, by its names."""

    n: int  # taps of a filter row that share columns of x
    bi: int  # input channels of a block
    bo: int  # output channels of a block: 64, or 64 of each warpgroup
    stages: int  # columns of dy that wait to be multiplied
    depth: int  # steps of 16 positions that make a partial sum

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory."""
        slots = self.stages + self.n - 1  # column_sweep.cuh
        size = 2 * 2 * KC * (self.stages * self.bo + slots * self.bi)
        size += 4 * (KC + 1) * (self.bo + self.bi)  # a stage on its way, and sums of squares
        size += 16 * self.stages + 16 + 2 * WORK + SOURCE
        return -(-size // 16) * 16

    def __str__(self) -> str:
        block = f"{self.bo}x{self.bi} columns, taps={self.n} stages={self.stages}"
        return f"{block} depth={self.depth}"


CONFIGS = (
    Config(1, 128, 128, 2, 4),
    Config(2, 128, 128, 2, 2),
    Config(2, 64, 64, 4, 4),
    Config(3, 64, 128, 3, 4),
    Config(4, 64, 64, 3, 4),
    Config(5, 32, 128, 3, 4),
    Config(6, 64, 64, 3, 4),
    Config(7, 32, 128, 2, 4),
    Config(8, 64, 64, 2, 2),
)


@dataclass(frozen=True)
class WgradSplitPlan(WgradColumnsPlan):
    """One call: as columns', with headers before the parts of sums."""

    config: Config

    checks_accuracy = True

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        depth = self.config.depth
        partial = 16 * split.products(2) * depth
        return f"{super().simulated}:{partial},ahead={depth}"

    @property
    def workspace(self) -> int:
        """Bytes of headers, and of parts of sums where blocks share some."""
        return HEADERS + self.shares.workspace

    def source(self) -> str:
        """The translation unit of the kernels."""
        return source(self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {
            "winolab_wgrad_direct_split": self.config.shared_memory,
            "winolab_wgrad_direct_scan": 0,
            "winolab_wgrad_direct_gather": 0,
            "winolab_scale": 0,
        }

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        g, v, early = self.gradient, self.config, self.device.early_launches
        headers = workspace, workspace + scale.HEADER
        arrays = [
            scale.parameters(Correlation.of(self.problem, c), header, 0, view, wide=True)
            for view, c, header in zip((a, b), ("forward", "backward_data"), headers, strict=True)
        ]  # as inputs of such a correlation
        for array in arrays:
            scale.scale(kernels, array, early and array is not arrays[0])  # one beside the other
        params = Params.of(
            packed(g, (a, b, out), workspace + HEADERS, v, self.columns, self.shares),
            SPLIT_PARAMS.pack(*headers),
        )
        threads = CONSUMERS + PRODUCERS
        kernels["winolab_wgrad_direct_split"]((self.shares.grid, 1, 1), threads, params, early)
        gather(kernels, v, self.shares, params, self.device)
        blocks = (2 * self.device.multiprocessors, 1, 1)
        kernels["winolab_wgrad_direct_scan"](blocks, scale.THREADS, Params.of(*arrays), early)


@lru_cache(maxsize=64)
def source(config: Config) -> str:
    """The translation unit of one config: scales, products, and the sums of parts."""
    types = {"INPUT": 0, "OUTPUT": 0, "PARTS": 2, "BF16": 0, "WIDE": 1, "YVEC": 4}
    return unit(
        f"Ω2(1,1) fp32_split, {config}",
        {
            **constants(config, **types, **CONSTANTS),
            **scale.constants((TILE, transforms(TILE.n, TILE.r))),
            **scale.BLOCKS,
        },
        {},
        ("wgrad_direct/split",),
    )


def met(g: Gradient, n: int, found: Columns) -> tuple[float, float]:
    """Per column of dy: of x, how many are multiplied and how many are brought, on average.

    Not those outside the image, unless a column's positions lie in different ones of x.
    """
    if found.chunks > 1:
        return n, 1 + (n - 1) / found.pitch
    width, columns = g.input[2], g.output[2]
    taps = range(n * len(found.useful))
    multiplied = sum(last - first for first, last in (g.rows(2, tap) for tap in taps))
    first = [g.padding[2] - tap for tap in taps[::n]]  # of dy, where tiles' first taps meet x
    brought = sum(max(0, min(width, columns + n - 1 - f) - max(0, -f)) for f in first)
    return multiplied / sum(found.useful), brought / sum(found.useful)


def plans(request: Request) -> Iterator[WgradSplitPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    otherwise = "; with a workspace omega computes any, precision 'fp32_ffma' without one"
    g = fitting(request, "direct split products", VECTOR, otherwise)
    for shape in shapes(request, g, Config, CONFIGS):
        yield _plan(request, g, shape)


def cost(
    device: Device, g: Gradient, v: Config, found: Columns, model: DeviceModel = MODEL
) -> Cost:
    """What a block's stages take: products of a column; elements loaded, split and stored."""
    m = model.wgrad_direct
    multiplied, brought = met(g, v.n, found)
    products = m.split_products * split.products(2) * multiplied * v.bi * v.bo
    elements = m.split_element * (v.bo + v.bi * brought) * device.matrix
    stage = matrix_seconds(device, KC * overlapped(SHARP, products, elements))
    return Cost(stage, m.split_part / device.clock, 4 * v.n * v.bi * v.bo, device, model)


def seconds(plan: WgradSplitPlan, model: DeviceModel = MODEL) -> float:
    """Predicted time of a call."""
    of = cost(plan.device, plan.gradient, plan.config, plan.columns, model)
    return _whole(plan.problem, plan.device, taken(plan.columns, plan.shares, of), model)


def _whole(problem: Problem, device: Device, main: float, model: DeviceModel = MODEL) -> float:
    """Seconds with the launches about scales, before and behind the main ones."""
    return max(main, read(problem, "fp32_split", device, model)) + 2 * model.device.launch


def _plan(request: Request, g: Gradient, v: Config) -> WgradSplitPlan:
    g.units(TILE, g.output[2])  # as many positions as can be counted
    problem, device, limit = request.problem, request.device, request.workspace_limit
    if limit is not None:
        limit -= HEADERS
        if limit < 0:
            raise ValueError(
                f"direct split products need a workspace of {HEADERS} B at least; the limit is "
                f"{request.workspace_limit} B: raise it, or use precision 'fp32_ffma'"
            )
    # Memory is farther from what holds these than direct products of FP16.
    cached = operands(problem, "fp32_split") <= MODEL.wgrad_direct.split_cached * device.l2
    found, shares = cut(g, v, device, lambda found: cost(device, g, v, found), limit, cached)
    return WgradSplitPlan(
        problem,
        g,
        request.precision,
        request.stored,
        v,
        device,
        found,
        shares,
        _whole(problem, device, shares.seconds),
    )
