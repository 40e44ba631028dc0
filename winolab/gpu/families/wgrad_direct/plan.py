"""Filter gradients by direct products on wgmma: FP16, BF16 and split FP32.

Nothing is transformed: x and dy are multiplied as they lie. That is faster than Ωα(n,r) where
memory bounds its transforms, where Φ or the channels are few, and all that a small workspace
leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from winolab.arguments.words import plural
from winolab.gpu.families.axes import pointwise
from winolab.gpu.families.direct_products import TILE, DirectGradient, fitting
from winolab.gpu.families.reading import operands, read, reading
from winolab.gpu.families.wgrad import (
    Gradient,
    choose,
)
from winolab.gpu.families.wgrad_direct.chunks import blocks_of_row, cut, told
from winolab.gpu.families.wgrad_direct.config import (
    COLUMNS,
    KC,
    LONG,
    NARROW,
    POINTWISE,
    SPLIT,
    ColumnsConfig,
    DirectConfig,
    NarrowConfig,
    SplitConfig,
)
from winolab.gpu.families.wgrad_direct.cost import (
    columns_cost,
    narrow_timing,
    split_call,
    split_cost,
)
from winolab.gpu.families.wgrad_direct.launch import (
    HEADERS,
    launch_columns,
    launch_narrow,
    launch_split,
)
from winolab.gpu.families.wgrad_direct.source import columns_source, narrow_source, split_source
from winolab.gpu.families.wgrad_direct.tiling import ColumnsTiling, NarrowTiling, SplitTiling
from winolab.gpu.params import WHOLE, Kernels, View
from winolab.gpu.planner.correlation import check_unit
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.request import Request, Sum
from winolab.ref.arithmetic import split

VECTOR, SPLIT_VECTOR = 8, 4  # channels of a copy; of a load of split data

PRODUCTS = "direct products without a workspace"

C = TypeVar("C", bound=DirectConfig)


@dataclass(frozen=True)
class WgradColumnsPlan(ColumnsTiling, DirectGradient):
    """One call by columns.

    One launch computes what a block computes alone, and parts of what several share; a second one
    adds these up. Where 64 channels of dy meet few taps, the narrow kernel is faster.
    """

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
        block = told_block(self.config, f"columns of {KC} positions")
        return self.told(block, grid)

    def source(self) -> str:
        """The translation unit of its two kernels."""
        steps = self.gradient.steps
        return columns_source(self.precision, self.out_dtype, self.config, steps)

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
        launch_columns(self, kernels, a, b, out, workspace)


@dataclass(frozen=True)
class WgradNarrowPlan(NarrowTiling, DirectGradient):
    """One call of 64 output channels and few taps.

    Positions are laid end to end, so that a block reads x and dy as they follow each other in
    memory. One launch computes every segment's share of the sum; where there are several, a second
    one adds the shares up.
    """

    predicted: float  # seconds

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed."""
        of = self.segments * self.config.halves
        return (Sum(1.0, self.gradient.products / of),)

    def __str__(self) -> str:
        block = told_block(self.config, f"{self.config.kc} positions a stage")
        blocks, segments = plural(self.blocks, "block"), plural(self.segments, "segment")
        grid = [f"grid       {blocks} in each of {segments}"]
        return self.told(block, grid)

    def source(self) -> str:
        """The translation unit of ``winolab_wgrad_direct_narrow`` and ``winolab_reduce``."""
        return narrow_source(self.precision, self.out_dtype, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_wgrad_direct_narrow": self.config.shared_memory, "winolab_reduce": 0}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch_narrow(self, kernels, a, b, out, workspace)


@dataclass(frozen=True)
class WgradSplitPlan(SplitTiling, WgradColumnsPlan):
    """One call of split data by columns, with headers before the parts of sums.

    The workspace holds no more than headers and parts of sums, where Ωα(n,r) takes 1.8 times the
    data. Two launches sample x and dy for their scales; one computes and checks what a block
    computes alone (fallback.cuh), and parts of what several share; where there are any, another one
    adds these up; and where results are 0, the last one scans x and dy for numbers that vanished.
    """

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
        return split_source(self.config, self.gradient.steps)

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
        launch_split(self, kernels, a, b, out, workspace)


def told_block(v: DirectConfig, positions: str) -> str:
    """What is printed of a block, which has those positions at once."""
    return f"{v.bo} × {v.bi} channels of {plural(v.n, 'tap')}, {positions}"


def columns_plans(request: Request) -> Iterator[WgradColumnsPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    g = fitting(request, PRODUCTS, VECTOR)
    blocks = POINTWISE if uncut(request, g) else COLUMNS
    alone = blocks is COLUMNS and (skips_columns(g) or g.filter[2] == 1)
    if alone and request.config_of(ColumnsConfig) is None:
        raise ValueError("sums by columns have taps of a filter's row that share columns of x")
    for shape in shapes(request, g, ColumnsConfig, blocks):
        yield _columns(request, g, shape)


def uncut(request: Request, g: Gradient) -> bool:
    """Whether sums of one tap are long, and may not be cut by cuBLASLt."""
    positions = g.batch * math.prod(g.output)
    return positions >= LONG and positions % WHOLE > 0 and pointwise(request.problem)


def narrow_plans(request: Request) -> Iterator[WgradNarrowPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    check_unit(request.problem)
    g = fitting(request, PRODUCTS, VECTOR)
    for shape in shapes(request, g, NarrowConfig, NARROW):
        yield _narrow(request, g, shape)


def split_plans(request: Request) -> Iterator[WgradSplitPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    otherwise = "; with a workspace omega computes any, precision 'fp32_ffma' without one"
    g = fitting(request, f"split {PRODUCTS}", SPLIT_VECTOR, otherwise)
    for shape in shapes(request, g, SplitConfig, SPLIT):
        yield _split(request, g, shape)


def shapes(request: Request, g: Gradient, kind: type[C], configs: Iterable[C]) -> Iterator[C]:
    """The block shapes to plan: the one asked for, or those of which one tap at most is in vain.

    Raises ValueError for one asked for whose taps would have to share columns of x, and cannot.
    """
    if config := request.config_of(kind):
        if config.n > 1 and skips_columns(g):
            raise ValueError(
                f"{config}: taps that are a stride or a dilation apart share no columns of x; use "
                "a block of one tap"
            )
        yield config
    else:
        yield from (v for v in configs if v.n <= (1 if skips_columns(g) else g.filter[2] + 1))


def skips_columns(g: Gradient) -> bool:
    """Whether neighbouring columns of dy, or taps of a row, meet no neighbouring columns of x."""
    return g.stride[2] > 1 or g.dilation[2] > 1


def _columns(request: Request, g: Gradient, v: ColumnsConfig) -> WgradColumnsPlan:
    g.units(TILE, g.output[2])  # as many positions as can be counted
    problem, precision, device = request.problem, request.precision, request.device
    # Blocks may be at different places of x and dy where these stay in L2.
    cached = operands(problem, precision) <= MODEL.wgrad_direct.cached * device.l2
    limit = request.workspace_limit
    found, shares = cut(g, v, device, lambda found: columns_cost(device, v, found), limit, cached)
    predicted = reading(problem, precision, device, shares.seconds)
    return WgradColumnsPlan(
        problem, g, precision, request.written, v, device, found, shares, predicted
    )


def _narrow(request: Request, g: Gradient, v: NarrowConfig) -> WgradNarrowPlan:
    problem, device = request.problem, request.device
    blocks = blocks_of_row(g, v) * g.filter[0] * g.filter[1]
    units = g.units(TILE, g.output[2] + v.n - 1)
    limit = request.workspace_limit
    segments = choose(g, units, narrow_timing(device, g, v, blocks), limit, first=False)
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


def _split(request: Request, g: Gradient, v: SplitConfig) -> WgradSplitPlan:
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
    found, shares = cut(g, v, device, lambda found: split_cost(device, g, v, found), limit, cached)
    return WgradSplitPlan(
        problem,
        g,
        request.precision,
        request.stored,
        v,
        device,
        found,
        shares,
        split_call(problem, device, shares.seconds),
    )
