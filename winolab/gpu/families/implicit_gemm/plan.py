"""Implicit GEMM on mma.sync (8.0 and later), wgmma (9.0) or FFMA units: plans, source, launches.

What no other kernel serves, or serves a launch a group: filter gradients with strides and
dilation, groups of few channels, few channels at all, 1 × 1 in FP32. Split FP32 has TF32 parts,
whose range is FP32's but for a least step of 2⁻¹³⁶: nothing is scaled, and nothing stands behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from winolab.algorithm import Algorithm, Problem, Tile, direct
from winolab.arguments.epilogue import Epilogue
from winolab.arguments.words import plural
from winolab.gpu.families import wgrad
from winolab.gpu.families.axes import counted, pointwise
from winolab.gpu.families.implicit_gemm import cost, launch
from winolab.gpu.families.implicit_gemm.config import (
    ROLES,
    Config,
    configs,
    fillable,
    merged,
    on_wgmma,
)
from winolab.gpu.families.implicit_gemm.source import source
from winolab.gpu.families.implicit_gemm.tiling import Tiling
from winolab.gpu.machine import without_cublaslt
from winolab.gpu.params import MOST, Kernels, View, uncounted
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.request import ITEMSIZE, FallbackLaunches, Request, Sum

TILE = Tile(1, 1)
# Positions of results, or of a gradient's sum: blocks are few, whose sum is cut, or have few steps.
FEW, LONG = 300, 800  # and elements of a sum that is worth cutting
THIN = 16  # channels up to which wgrad_thin has gradients of 1 × 1
DENSE = 8  # channels that other kernels' vectors divide


@dataclass(frozen=True)
class ImplicitGemmPlan(Tiling, BasePlan):
    """One call: what is computed, by which kernels, on what grid, at what cost."""

    predicted: float = 0.0  # seconds
    epilogue: Epilogue | None = None

    kernel = "implicit GEMM"
    points = "best"  # as of all plans; there is nothing to interpolate
    tile = TILE

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return direct()

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """F(1, 1) of gradients and split products; of other correlations none."""
        return (TILE,) if self.gradient or self.precision == "fp32_split" else ()

    @property
    def simulated(self) -> str:
        """What the reference calls the arithmetic."""
        if self.precision == "fp32":
            return "fp32"
        if self.precision == "fp32_split":
            chunk, step = 8, self.config.depth
            if self.merged > 1 and not self.gradient:  # other groups' channels are zeros
                channels = self.correlation.channels
                step = max(step // self.merged, min(channels, step))
                chunk = math.gcd(8, channels)
            sums = f"tensor_core:{chunk}:2:truncate:{3 * step}"
            return f"fp32_split,product=tf32,scale=none,accumulation={sums}"
        return f"{self.precision},accumulation=tensor_core:16:2:truncate"

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed."""
        return (Sum(1.0, self.positions / self.segments),) if self.gradient else ()

    @property
    def split_sums(self) -> tuple[tuple[float, int], ...]:
        """A correlation's: all results, in as many segments as its sum is cut into."""
        return ((1.0, self.segments if self.segmented else 1),)

    def __str__(self) -> str:
        p, v = self.problem, self.config
        groups = f", {self.merged} groups a block" if self.merged > 1 else ""
        cut = self.gradient or self.segmented
        segments = f" in {plural(self.segments, 'segment')}" if cut else ""
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"block      {v.block_rows} × {v.block_columns} results, "
                f"{v.depth} deep a step{groups}",
                f"policies   {v}",
                f"grid       {plural(self.grid, 'block')} of {v.threads} threads{segments}",
                f"memory     {self._shared_memory} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    @property
    def _shared_memory(self) -> int:
        return self.config.shared_memory(ROLES[self.direction], ITEMSIZE[self.dtype])

    def with_epilogue(self, epilogue: Epilogue) -> Self:
        """The plan whose kernel applies it as it stores y, or as it adds segments up."""
        return replace(self, epilogue=epilogue)

    def source(self) -> str:
        """The translation unit of its kernels."""
        types = self.precision, self.dtype, self.out_dtype
        c = self.correlation
        groups = self.merged, c.channels, c.out_channels
        how = self.segmented, self.epilogue
        return source(self.config, self.direction, types, self.vectors, groups, *how)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        found = {self.main_kernel: self._shared_memory}
        found |= {"winolab_reduce": 0} if self.gradient or self.segmented else {}
        return found | ({"winolab_implicit_gemm_fill": 0} if self.config.fill else {})

    @property
    def fallback_launches(self) -> FallbackLaunches | None:
        """Gradients on FFMA units: what fills up channels runs whether flags ask for it or not."""
        return self if self.gradient and self.precision == "fp32" and not self.config.fill else None

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
        """Compute all groups on the current stream; ``wanted``: fallback.cuh's flags."""
        launch.launch(self, kernels, a, b, out, workspace, wanted)


def wanted(problem: Problem, direction: str, precision: str) -> bool:
    """Whether other kernels do not serve it, or not so well. Dense layers of unit stride have
    others, but in FP32 what has few results, or gradients few positions, and 1 × 1; strided layers
    on FFMA units have direct/ffma.cuh, but gradients."""
    if problem.depthwise:
        return False
    channels = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    thin = any(n % DENSE for n in channels)
    gradient = direction == "backward_filter"
    sizes = problem.input if direction == "backward_data" else problem.output
    few = problem.batch * math.prod(sizes) <= FEW
    summed = channels[direction == "backward_data"] * math.prod(problem.filter)
    if few and gradient and precision in ("fp32", "fp32_split"):
        return True
    if few and summed >= LONG and precision == "fp32_split":
        return True
    if (
        precision == "fp32_split"
        and pointwise(problem)
        and not (gradient and min(channels) <= THIN)
    ):
        return True  # over before FP16 parts have their scale, filter and check, which take 15 µs
    if precision == "fp32":
        return problem.groups > 1 or (gradient and not problem.unit)
    return problem.groups > 1 or thin or not problem.unit


def librarys(request: Request) -> bool:
    """Whether cuBLASLt has the product, in 16 bits, which of twelve networks' layers of few or odd
    channels took at most 1.03 times as long and half at best (changed_picks.jsonl). Where several
    results are no whole vectors it may take twice as long: 11.8 and 6.1 µs for 32 of 10 channels
    (networks_forward.jsonl)."""
    problem = request.problem
    if ITEMSIZE[request.dtype] != 2 or request.direction not in CORRELATIONS or request.finished:
        return False
    several = problem.batch * math.prod(problem.output) > 1
    if request.direction == "forward" and problem.out_channels % DENSE and several:
        return False
    return pointwise(problem) and not without_cublaslt()


def alone(request: Request) -> bool:
    """Whether no other family has direct products of these 16-bit arrays, forward or backward data:
    those of wgmma need 9.0 and aligned pixels. Unnamed, Γ serves filters of two taps and more."""
    tensor = request.device.wgmma and request.aligned
    if tensor or ITEMSIZE[request.dtype] != 2 or request.direction not in CORRELATIONS:
        return False
    return request.algorithm is not None or request.problem.filter[-1] == 1


def plans(request: Request) -> Iterator[ImplicitGemmPlan]:
    """Every block shape that can run, of what is ``wanted`` or served ``alone``. Raises ValueError
    where none can, and says why."""
    device, algorithm, problem = request.device, request.algorithm, request.problem
    config = request.config_of(Config)
    needed = wanted(problem, request.direction, request.precision) or alone(request)
    if not config and (not needed or librarys(request)):
        return
    if algorithm and algorithm.kind != "direct":
        return  # others say what computes it
    gradient = request.direction == "backward_filter"
    c = counted(problem, "forward" if gradient else request.direction)
    if c.empty or not c.channels or 0 in c.input:
        raise ValueError("an implicit GEMM needs something to sum")
    found = ImplicitGemmPlan(
        request.direction, problem, c, request.precision, request.dtype,
        request.written if gradient else request.stored, Config(64, 32, 32, 2, 1, 2),
        merged(c), device,
    )  # fmt: skip
    results, depth = found.merged * c.out_channels, found.merged * c.channels * math.prod(c.filter)
    if (most := max(found.positions, depth)) > MOST - 1024:
        raise uncounted("the number of rows of an implicit GEMM", most)
    rows, columns = (results, depth) if gradient else (found.positions, results)
    role, size = ROLES[request.direction], ITEMSIZE[request.dtype]
    offered = [config] if config else configs(device, role, size, rows, columns)
    if not config and on_wgmma(device, size, (2, 2)):
        offered += configs(device, role, size, rows, columns, wgmma=True)
    if fillable(c) and not c.rotated and not config:  # of backward data by name: not measured yet
        offered += [replace(v, fill=1) for v in offered]
    for shape in offered:
        if shape.fill and not fillable(c):
            channels = plural(c.channels, "channel")
            raise ValueError(f"an implicit GEMM does not fill up {channels}: {shape}")
        # A block of fewer columns than all groups have would sum over channels of others.
        columns = shape.block_columns
        few = not gradient and not shape.producers and columns < found.merged * c.out_channels
        made = replace(found, config=shape, merged=merged(c, columns) if few else found.merged)
        if shape.producers and not on_wgmma(device, size, made.vectors):
            if not config:
                continue
            raise ValueError(f"no wgmma on {device.name} for vectors of {made.vectors}: {shape}")
        fits = made._shared_memory <= device.shared_memory
        if config and not (fits and shape.runs(role, made.vectors)):
            raise ValueError(f"no kernel of an implicit GEMM on {device.name} has blocks {shape}")
        limit = request.workspace_limit
        if limit is not None and sum(made.filled) > limit and not config:
            continue
        if made.grid > MOST:
            raise uncounted("the number of blocks of an implicit GEMM", made.grid)
        yield _timed(made, request.workspace_limit)


def _timed(plan: ImplicitGemmPlan, limit: int | None) -> ImplicitGemmPlan:
    """Choose a plan's segments, and predict its time."""
    if not (plan.gradient or _divisible(plan)):
        return replace(plan, predicted=cost.seconds(plan))
    crowded = cost.timing_of(plan, blocks=plan.config.blocks)  # segments are to fill what is held
    if plan.gradient:
        left = None if limit is None else limit - sum(plan.filled)
        found = wgrad.choose(plan.result, plan.summed, crowded, left, first=False)
        made = replace(plan, segments=found.count)
        return replace(made, predicted=cost.seconds(made))
    most = wgrad.Gradient.of(plan.problem).data if limit is None else limit
    cuts = (replace(plan, segments=n) for n in wgrad.counts(plan.summed, crowded))
    timed = [replace(p, predicted=cost.seconds(p)) for p in cuts if p.workspace <= most]
    enough = wgrad.NEAR_FASTEST * min(p.predicted for p in timed)
    return next(p for p in timed if p.predicted <= enough)


def _divisible(plan: ImplicitGemmPlan) -> bool:
    """Whether the sum of a correlation may be cut: of split FP32 with unit stride, one group."""
    unit = plan.problem.unit and plan.phases == 1 and plan.correlation.groups == 1
    return unit and plan.precision == "fp32_split" and not plan.config.fill
