"""Depthwise convolution in all directions: plans, source and launches.

Every sum is of one channel's taps, or of one channel's positions: no matrix product. What it costs
is its data, read and written once, and FFMAs, so that both have to go on at once.
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
from winolab.gpu.families.depthwise import cost
from winolab.gpu.families.depthwise.config import (
    THREADS,
    Config,
    Stage,
    configs,
    shared_memory,
    slides,
    staged,
)
from winolab.gpu.families.depthwise.geometry import Depthwise
from winolab.gpu.params import MAP, Kernels, Layout, Params, TensorMap, View
from winolab.gpu.planner.request import ITEMSIZE, BasePlan, Request, Sum

ARCHITECTURE = (8, 0)
PARAMS = layout("DepthwiseParams", "depthwise/arrays")
MAPS = Layout(("x_map dy_map", MAP))  # of DepthwiseStagedParams, before these
TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}  # as the kernels name them
TOGETHER = 8  # taps of a block of filter_any.cuh
SUMMED, SUM_THREADS = 32, 256  # elements and threads of a block that adds parts up


@dataclass(frozen=True)
class DepthwisePlan(BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    direction: str
    problem: Problem
    shape: Depthwise
    precision: str
    dtype: str  # of the operands
    out_dtype: str
    config: Config
    device: Device
    rows: int  # of outputs, of a thread's walk
    parts: int = 1  # of a filter gradient's sum
    workers: int = 0  # blocks of a chunk of channels that walk from item to item; 0: all
    predicted: float = 0.0  # seconds

    kernel = "depthwise"
    tile = Tile(1, 1)
    points = "best"  # as of all plans; there is nothing to interpolate

    @property
    def gradient(self) -> bool:
        """Whether the result is dw."""
        return self.direction == "backward_filter"

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return direct()

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """None of correlations; F(1, 1) of gradients."""
        return (self.tile,) if self.gradient else ()

    @property
    def simulated(self) -> str:
        """What the reference calls the arithmetic: sums in order, in FP32."""
        return "fp32" if self.precision == "fp32" else f"{self.precision},accumulation=sequential"

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed: by every thread of every part, whose sums are then added up."""
        if not self.gradient:
            return ()
        slots = self.config.slots
        threads = min(self.items * (slots if self.config.stages else 1), self.parts * slots)
        return (Sum(1.0, self.shape.positions / threads, threads),)

    @property
    def workspace(self) -> int:
        """Bytes: the parts of dw."""
        return 4 * self.shape.channels * self.shape.taps * self.parts if self.parts > 1 else 0

    @property
    def chunks(self) -> int:
        """Blocks of channels."""
        return -(-self.shape.channels // self.config.channels)

    @property
    def strips(self) -> int:
        """Strips of a row of a phase; with stages, groups of strips next to each other."""
        d, v = self.shape, self.config
        if v.kind == "scatter":
            strips = -(-d.windows(2)[1] // (v.columns // d.stride[2]))
        else:
            of_phase = -(-d.output[2] // self.phases[1])
            strips = -(-of_phase // v.columns)
        return -(-strips // v.strips) if v.stages else strips

    @property
    def phases(self) -> tuple[int, int]:
        """Phases of rows and of columns."""
        d = self.shape
        if self.config.kind == "any":
            return 1, d.phases(2) if slides(d) else 1
        return d.phases(1), d.phases(2)

    @property
    def walked(self) -> int:
        """Rows of a phase that threads walk down."""
        d = self.shape
        if self.config.kind == "scatter":
            return d.windows(1)[1]
        return -(-d.output[1] // self.phases[0])

    @property
    def segments(self) -> int:
        """Into which a phase's rows are cut."""
        return -(-self.walked // self.rows)

    @property
    def items(self) -> int:
        """Threads' worths of outputs of a channel; with stages, blocks' worths."""
        d = self.shape
        return (
            -(-d.batch // self.config.images)
            * d.output[0]
            * math.prod(self.phases)
            * self.segments
            * self.strips
        )

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        d, v = self.shape, self.config
        if not self.gradient:
            return self.chunks * (self.workers or -(-self.items // (1 if v.stages else v.slots)))
        taps = d.filter[0] * d.filter[1] * -(-d.filter[2] // TOGETHER) if v.kind == "any" else 1
        return self.chunks * taps * self.parts

    def __str__(self) -> str:
        p, v = self.problem, self.config
        size = max(self.shared().values())
        parts = f", {self.parts} parts of the sum" if self.gradient else ""
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} stride {p.stride} padding {p.padding} "
                f"dilation {p.dilation}",
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"block      {v.channels} channels × {v.slots} strips of {v.columns} columns × "
                f"{self.rows} rows",
                f"policies   {v}",
                f"grid       {self.blocks} blocks of {v.threads} threads{parts}",
                f"memory     {size} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of its kernels."""
        known = self.config.kind != "any"
        d = self.shape
        shape = (*d.filter, *d.stride[1:]) if known else None
        how = d.rotated, d.gathered, slides(d)
        types = TYPES[self.dtype], TYPES[self.out_dtype]
        return source(self.file, self.config, self.gradient, shape, how, types)

    @property
    def file(self) -> str:
        """The file of the main kernel, which is named after it."""
        if self.config.stages:
            return "staged_filter" if self.gradient else f"staged_{self.config.kind}"
        return f"filter_{self.config.kind}" if self.gradient else self.config.kind

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        size = shared_memory(self.shape, self.config, self.gradient, ITEMSIZE[self.dtype])
        sums = {"winolab_depthwise_filter_sums": 0} if self.gradient else {}
        return {f"winolab_depthwise_{self.file}": size} | sums

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all channels on the current stream."""
        params = self.params(a, b, out, workspace)
        main = Params.of(self.maps(a, b), params) if self.config.stages else params
        grid, threads = (self.blocks, 1, 1), self.config.threads
        kernels[f"winolab_depthwise_{self.file}"](grid, threads, main)
        if self.parts > 1:
            blocks = -(-self.shape.channels * self.shape.taps // SUMMED)
            early = self.device.early_launches
            kernels["winolab_depthwise_filter_sums"]((blocks, 1, 1), SUM_THREADS, params, early)

    def maps(self, a: View, b: View) -> Params:
        """Tensor maps of x and of dy, where that comes along."""
        d, size = self.shape, ITEMSIZE[self.dtype]
        stage = Stage.of(d, self.config, self.gradient, size)
        x_channels = d.channels

        def described(v: View, sizes: tuple[int, ...], box: tuple[int, ...]) -> TensorMap:
            shape = (x_channels, *sizes[::-1], d.batch)
            return TensorMap.of(v.address, size, shape, v.strides[::-1], box, plain=True)

        dy = described(b, d.output, stage.dy) if stage.dy else None
        return MAPS.pack(described(a, d.input, stage.x), dy)

    def params(self, a: View, b: View, out: View, workspace: int) -> Params:
        """Parameters of all its kernels."""
        d = self.shape
        x, y, w = (a, b, out) if self.gradient else (a, out, b)
        steps = [math.prod(d.filter[i:]) for i in range(4)]
        dense = all(
            n == 1 or have == step
            for n, have, step in zip((2, *d.filter), w.strides, steps, strict=False)
        )
        firsts = [d.windows(i) if self.config.kind == "scatter" else (0, 0) for i in (1, 2)]
        return PARAMS.pack(
            x.address,
            b.address,
            out.address,
            workspace,
            *x.strides[:3],
            *y.strides[:3],
            *w.strides[:4],
            x.strides[3],
            y.strides[3],
            d.batch,
            *d.input,
            *d.output,
            *d.padding,
            *d.stride,
            *d.dilation,
            *d.filter,
            d.channels,
            d.multiplier,
            *self.phases,
            firsts[0][0],
            firsts[1][0],
            firsts[0][1],
            self.strips,
            self.segments,
            self.rows,
            int(dense),
            self.chunks,
            self.items,
            self.parts,
        )


@lru_cache(maxsize=256)
def source(
    file: str,
    v: Config,
    gradient: bool,
    shape: tuple[int, ...] | None,
    how: tuple[bool, bool, bool],
    types: tuple[int, int],
) -> str:
    """The translation unit of a config, its main kernel in ``file``.

    ``shape``: taps and strides, where it has those as constants; ``how``: whether taps go
    backwards, dy is gathered, columns slide; ``types``: of the operands and of the result.
    """
    constants = {"LANES": v.lanes, "V": v.vector, "TW": v.columns, "THREADS": THREADS}
    constants |= {"STAGES": v.stages}
    constants |= {"INPUT": types[0], "OUTPUT": types[1]}
    if shape:
        constants |= dict(zip(("KD", "KH", "KW", "SH", "SW"), shape, strict=True))
        constants["ROTATED"] = int(how[0])
    else:
        constants |= dict(zip(("ROTATED", "GATHER", "SLIDE"), map(int, how), strict=True))
    if v.stages:
        constants |= {"STRIPS": v.strips, "GROUP": v.group, "GRADIENT": int(gradient)}
        constants["SCATTER"] = int(v.kind == "scatter")
    return unit(f"depthwise {v}", constants, {}, (f"depthwise/{file}",))


def plans(request: Request) -> Iterator[DepthwisePlan]:
    """Every block shape that can run; none of problems that are not depthwise.

    Raises ValueError where none can run a depthwise problem, and says why.
    """
    device, algorithm = request.device, request.algorithm
    if not request.problem.depthwise:  # another family says what is wrong with it
        return
    if device.compute_capability < ARCHITECTURE:
        raise request.unfit("the kernels need {}.{} or later".format(*ARCHITECTURE))
    if algorithm and algorithm.kind != "direct":
        raise ValueError(f"depthwise kernels do not compute {algorithm}")
    d = Depthwise.of(request.problem, request.direction)
    if 0 in (d.batch, d.channels, d.multiplier, *d.input, *d.output):
        raise ValueError("depthwise kernels need something to sum")
    gradient = request.direction == "backward_filter"
    how = d, gradient, ITEMSIZE[request.dtype], request.maps_aligned
    offered = [*(staged(*how) if device.large_blocks else ()), *configs(*how)]
    if request.config:
        offered = [v for v in offered if v == request.config]
    for v in offered:
        found = DepthwisePlan(
            request.direction, request.problem, d, request.precision, request.dtype,
            request.stored, v, device, 1,
        )  # fmt: skip
        yield from _sized(found, request.workspace_limit)


def alone(request: Request) -> bool:
    """Whether other families' kernels would be launched a channel each."""
    return request.problem.depthwise and request.problem.groups > 1


def _sized(plan: DepthwisePlan, limit: int | None) -> Iterator[DepthwisePlan]:
    """The fastest predicted of a config's walks and parts."""
    rows = (1,) if plan.config.kind == "any" else cost.walks(plan.walked)
    made = (replace(plan, rows=r) for r in rows)
    if plan.gradient:
        made = (replace(p, parts=n) for p in made for n in cost.parts(p))
    elif plan.config.stages:
        made = (replace(p, workers=cost.workers(p)) for p in made)
    timed = [replace(p, predicted=cost.seconds(p)) for p in made]
    fitting = [p for p in timed if limit is None or p.workspace <= limit]
    yield min(fitting or timed, key=lambda p: p.predicted)
