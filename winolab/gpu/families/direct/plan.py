"""Direct forward and backward data on wgmma, FP16 and BF16: nothing is transformed, no workspace.

Where images or filters are few, Γ's transforms take longer than the products that they save; and
products of 16-bit data are exact in FP32, so that little but the result's rounding is lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

from winolab.algorithm import Algorithm, Problem, Tile, direct
from winolab.device import Device
from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.boxes import Box
from winolab.gpu.families.direct import cost
from winolab.gpu.families.direct.axes import MOST_STEP, Axis, axes, counted
from winolab.gpu.families.direct.config import (
    BLOCKS,
    KC,
    ROW_BYTES,
    Config,
    box_of,
    configs,
    more,
    serves,
    tiles_of,
)
from winolab.gpu.params import Kernels, Params, TensorMap, View
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import ITEMSIZE, BasePlan, Request

__all__ = ["BLOCKS", "Config", "DirectPlan", "plans"]

ARCHITECTURE = (9, 0)  # wgmma: no other compute capability has it
SIZE, VECTOR = 2, 8  # bytes of an element; channels of a store
DEPTH = 16  # channels of a product
THREADS = 384  # of a block
PARAMS = layout("DirectParams", "direct/walk")


@dataclass(frozen=True)
class DirectPlan(BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    direction: str
    problem: Problem
    correlation: Correlation
    precision: str
    out_dtype: str  # "float32", or the operands'
    config: Config
    device: Device
    flat: bool = False  # whether all positions are one row
    predicted: float = 0.0  # seconds

    points = "best"  # as of all plans; there is nothing to interpolate
    tile = Tile(1, 1)
    workspace = 0
    step_channels: ClassVar[int] = KC
    itemsize: ClassVar[int] = SIZE  # bytes of an element of x
    reads_filters_in_place = True  # with 16-byte aligned taps, channels contiguous

    @property
    def kernel(self) -> str:
        """Named as the papers' kernels."""
        return "Γ1(1,1)"

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return direct()

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """None."""
        return self.algorithm.tiles

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        return f"{self.precision},accumulation=tensor_core:16:2:truncate"

    @property
    def rest(self) -> int:
        """Products deep of a tap's last step, where a whole step is deeper; or 0."""
        depth = -(-(self.correlation.channels % KC) // DEPTH)
        return depth % (KC // DEPTH)

    @property
    def more(self) -> int:
        """Pixels of a row of a copy of x that other taps than the first read."""
        return more(self.correlation, self.config)

    @property
    def box(self) -> Box:
        """Output positions of a block: neighbours of a row, rows, images."""
        return box_of(self.walked, self.config)

    @property
    def walked(self) -> Correlation:
        """What blocks are of: where all positions are one row, an image of that row."""
        return _row(self.correlation) if self.flat else self.correlation

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // self.config.bm)

    @property
    def work_tiles(self) -> int:
        """Blocks' worth of work of a group."""
        return tiles_of(self.walked, self.config)

    @property
    def axes(self) -> tuple[Axis, Axis, Axis]:
        """Depth, height and width."""
        return axes(self.walked)

    @property
    def chunks(self) -> int:
        """Steps of a tap."""
        return -(-self.correlation.channels // self.step_channels)

    @property
    def steps(self) -> int:
        """Steps of a sum, at most."""
        return math.prod(a.most for a in self.axes) * self.chunks

    @property
    def grid(self) -> int:
        """Blocks: persistent ones, or a cluster a work tile."""
        v = self.config
        return (
            self.work_tiles * v.split_k
            if v.split_k > 1
            else min(self.work_tiles, self.device.multiprocessors)
        )

    def __str__(self) -> str:
        p, v, b = self.problem, self.config, self.box
        row = ", all positions of dense arrays as one row" if self.flat else ""
        workspace = f"{self.workspace} B" if self.workspace else "no"
        strided = "" if p.unit else f" stride {p.stride} dilation {p.dilation}"
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape}{strided} padding {p.padding}",
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"block      {v.bm} channels × {b.images} images × {b.height} × {b.width} outputs, "
                f"{self.step_channels} channels a step{row}",
                f"policies   {v}",
                f"grid       {self.grid} blocks of {THREADS} threads, "
                f"{self.work_tiles} work tiles of {self.steps} steps",
                f"memory     {v.shared_memory} B shared, {workspace} workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of ``winolab_direct``."""
        wide = self.out_dtype == "float32"
        c = self.correlation
        return source(self.precision, wide, self.config, c.rotated, self.rest, not c.unit)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_direct": self.config.shared_memory}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        plan = self.fitting(a, out)
        for group in range(self.correlation.groups):
            kernels["winolab_direct"]((plan.grid, 1, 1), THREADS, plan.params(group, a, b, out))

    def fitting(self, x: View, y: View) -> Self:
        """The plan, or, where its positions are one row and those of these arrays are not, one of
        rows."""
        c = self.correlation
        gaps = not (_dense(x, c.batch, c.input) and _dense(y, c.batch, c.output))
        return replace(self, flat=False) if self.flat and gaps else self

    def params(self, group: int, x: View, w: View, y: View) -> Params:
        """Parameters of a group's convolution."""
        c, b = self.walked, self.box
        pitch = b.width + self.more
        params = PARAMS.pack(
            self._inputs(group, x),
            self._filters(group, w),
            y.address + ITEMSIZE[self.out_dtype] * group * c.out_channels,
            *y.strides[:4],
            b.width,
            b.height,
            b.images,
            pitch * b.height * b.images * ROW_BYTES,
            b.blocks_width,
            b.blocks_height,
            b.blocks_images,
            self.blocks_m,
            self.work_tiles,
            c.batch,
            *c.output,
            c.out_channels,
            *c.padding,
            *c.filter,
            self.chunks,
            pitch,
        )
        return Params.of(params, *(a.params() for a in self.axes))

    def _inputs(self, group: int, x: View) -> TensorMap:
        """The tensor map of a group's channels of x: those of the pixels that outputs meet."""
        c, b, (_, *along) = self.walked, self.box, self.axes
        steps = [1 if c.rotated or a.stride > MOST_STEP else a.stride for a in along]
        sizes = (c.channels, *c.input[::-1], c.batch)
        shape = (self.step_channels, b.width + self.more, b.height, 1, b.images)
        address = x.address + self.itemsize * group * c.channels
        return TensorMap.of(
            address, self.itemsize, sizes, x.strides[::-1], shape, steps=(1, *steps[::-1], 1, 1)
        )

    def _filters(self, group: int, w: View) -> TensorMap:
        """The tensor map of a group's filter: neighbouring channels, taps, the other channels."""
        c = self.correlation
        inner, outer = c.channels, c.out_channels
        if c.rotated:
            inner, outer = outer, inner
        sizes = (inner, *c.filter[::-1], outer)
        shape = (KC, 1, 1, 1, KC if c.rotated else self.config.bm)
        address = w.address + SIZE * group * outer * w.strides[0]
        return TensorMap.of(address, SIZE, sizes, w.strides[3::-1], shape)


@lru_cache(maxsize=64)
def source(
    precision: str, wide: bool, config: Config, rotated: bool, rest: int, strided: bool
) -> str:
    """The translation unit of one config; ``wide``: results in FP32; ``rest``: DirectPlan's."""
    constants = {"BF16": int(precision == "bf16"), "ROTATED": int(rotated), "REST": rest}
    constants |= {"WIDE_OUT": int(wide), "STRIDED": int(strided), "SPLIT": 0}
    return made(f"Γ1(1,1) {precision}", config, constants, "direct/kernel")


def made(name: str, config: Config, constants: dict[str, int], file: str) -> str:
    """The translation unit of a config, with further constants."""
    own = {name.upper(): value for name, value in asdict(config).items()}
    own |= {"SHARED": config.shared_memory} | constants
    return unit(f"{name}, {config}", own, {}, (file,))


def plans(request: Request) -> Iterator[DirectPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    device, algorithm = request.device, request.algorithm
    if device.compute_capability != ARCHITECTURE:
        raise request.unfit("direct products by wgmma need {}.{}".format(*ARCHITECTURE))
    if algorithm and algorithm.kind != "direct":
        raise ValueError(f"direct products do not compute {algorithm}")
    c = counted(request.problem, request.direction)
    if not request.aligned or c.channels % VECTOR or c.out_channels % VECTOR:
        raise ValueError(
            f"direct products on Tensor Cores need pixels that lie 16-byte aligned and groups of "
            f"multiples of {VECTOR} channels, not {c.channels} and {c.out_channels}"
        )
    if c.empty or not c.channels:
        raise ValueError("direct products on Tensor Cores need something to sum")
    flat = flattened(c)
    config = request.config_of(Config)
    if config and not serves(config, c):
        raise ValueError(f"direct products of {c.filter[2]} taps have no blocks {config}")
    offered = configs(_row(c) if flat else c, device)
    for shape in (config,) if config else offered:
        yield _plan(request, c, shape, flat)


def _row(c: Correlation) -> Correlation:
    """The same of all positions as one row: single taps do not ask where rows end."""
    return replace(
        c,
        batch=1,
        input=(1, 1, c.batch * math.prod(c.input)),
        output=(1, 1, c.batch * math.prod(c.output)),
    )


def _dense(view: View, batch: int, sizes: tuple[int, ...]) -> bool:
    """Whether pixels lie at equal distances, from row to row and image to image too."""
    step, counts = view.strides[3], (batch, *sizes)
    return all(
        counts[i] == 1 or view.strides[i] == step * math.prod(counts[i + 1 :]) for i in range(3)
    )


def flattened(c: Correlation) -> bool:
    """Whether single taps meet all positions in order."""
    return c.unit and {*c.filter} == {1} and not any(c.padding) and c.input == c.output


def _plan(request: Request, c: Correlation, config: Config, flat: bool) -> DirectPlan:
    what = request.direction, request.problem, c, request.precision, request.stored
    found = DirectPlan(*what, config, request.device, flat)
    return replace(found, predicted=cost.seconds(found))
