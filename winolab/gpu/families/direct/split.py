"""Direct forward and backward data of split FP32 on wgmma: any stride and dilation.

x is read as it lies, and split in registers; the filter's parts lie in the workspace.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

from winolab.algorithm import Tile
from winolab.device import H100
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import geometry, scale
from winolab.gpu.families.direct.axes import counted
from winolab.gpu.families.direct.config import Config, more, serves
from winolab.gpu.families.direct.cost import read, turns
from winolab.gpu.families.direct.plan import ARCHITECTURE, THREADS, DirectPlan, flattened, made
from winolab.gpu.params import Kernels, Params, TensorMap, View
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.device_model import overlapped
from winolab.gpu.planner.fallback import checkable, unchecked
from winolab.gpu.planner.request import CheckedCorrelation, Request
from winolab.ref.arithmetic.split import Scale, products

CHANNELS, PAIR = 32, 2  # of a step; parts of a number
VECTOR, FILTER_THREADS = 4, 128  # channels that x is aligned to; of a block that splits a filter
TILES = (Tile(1, 1),)
SPLIT_PARAMS = layout("DirectSplitParams", "direct/split")  # before walk.cuh's
FILTER_PARAMS = layout("DirectFilterParams", "direct/split_filter")
# Fitted to 331 times of 52 cases of an H100 (rms 7 %; what is picked takes 0.4 % more than the
# fastest): seconds of all launches; around a work tile's sums; of a step at least, and its products
# over their least time; bytes a second that L2 gives all blocks; of arrays; of a filter's parts, of
# which backward data reads a sector for each number.
LAUNCHES, ITEM = 19e-6, 10e-6
STEP, PRODUCTS = 0.36e-6, 1.43
COPIES, ARRAYS = 8.8e12, 3.65e12
FILTER, SECTOR = 2.7e12, 8

BLOCKS = (
    Config(128, 256, 4, 4),
    Config(128, 192, 5, 5),
    Config(128, 128, 6, 6),
    Config(128, 96, 7, 7),
    Config(128, 64, 8, 8),
    Config(128, 32, 9, 9),
    Config(128, 256, 2, 5, 1),
    Config(128, 192, 3, 6, 1),
    Config(128, 128, 4, 8, 1),
    Config(128, 64, 4, 12, 1),
)


@dataclass(frozen=True)
class SplitPlan(DirectPlan):
    """One call: what is computed, by which kernels, on what grid, at what cost."""

    given: Scale | None = None  # by the caller

    step_channels: ClassVar[int] = CHANNELS
    itemsize: ClassVar[int] = 4
    checks_accuracy = True
    reads_filters_in_place = False

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """F(1, 1): products without transforms."""
        return TILES

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        partial = products(PAIR) * CHANNELS
        text = f"fp32_split,accumulation=tensor_core:16:2:truncate:{partial},ahead={CHANNELS // 16}"
        return text + (f",scale={self.given}" if self.given else "")

    @property
    def checked_correlation(self) -> CheckedCorrelation | None:
        return self

    def scaled(self, scale: Scale | None) -> Self:
        """The plan with the caller's scale."""
        return replace(self, given=scale) if scale else self

    @property
    def header(self) -> int:
        """Bytes that the workspace begins with."""
        return scale.header_size(self.correlation, TILES)

    @property
    def _rows(self) -> int:
        return scale.size(self.correlation)

    @property
    def _filter(self) -> int:
        """Bytes of a group's parts."""
        c = self.correlation
        return c.out_channels * math.prod(c.filter) * self.chunks * 2 * PAIR * CHANNELS

    @property
    def prepared(self) -> int:
        """Bytes of the filter's rows and parts."""
        return self._rows + self.correlation.groups * self._filter

    @property
    def workspace(self) -> int:
        """Bytes: header, rows and parts."""
        return self.header + self.prepared

    def source(self) -> str:
        """The translation unit of the kernels."""
        c = self.correlation
        return source(self.config, c.rotated, not c.unit)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        others = ("scale", "scan", "direct_filter")
        return {"winolab_direct_split": self.config.shared_memory} | {
            f"winolab_{name}": 0 for name in others
        }

    @property
    def _known(self) -> tuple[int, float]:
        return scale.known(self.given)

    def scale_params(self, x: View, header: int, rows: int) -> Params:
        """Parameters of the launches that sample and scan x; ``header``, the filter's ``rows``."""
        c = self.correlation
        room = scale.room(c, TILES)
        return scale.parameters(c, header, rows, x, True, self._known[0], room=room)

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        self._correlate(kernels, a, b, workspace + self.header, out, workspace)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Split the filter."""
        for group in range(self.correlation.groups):
            self._split(kernels, group, b, prepared, early=False)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a filter that is split; ``workspace`` begins with the header."""
        self._correlate(kernels, a, None, prepared, out, workspace)

    def _split(self, kernels: Kernels, group: int, w: View, prepared: int, early: bool) -> None:
        c = self.correlation
        address, m, channel, *taps = geometry.filter_map(c, w, group, 4)
        params = FILTER_PARAMS.pack(
            address,
            self._parts(prepared, group),
            scale.row(c, prepared, group),
            m,
            channel,
            *taps,
            c.out_channels,
            c.channels,
            *c.filter[1:],
            math.prod(c.filter),
            self.chunks,
            self._known[1],
        )
        kernels["winolab_direct_filter"]((scale.padded(c), 1, 1), FILTER_THREADS, params, early)

    def _parts(self, prepared: int, group: int) -> int:
        """The address of a group's parts."""
        return prepared + self._rows + group * self._filter

    def _correlate(
        self, kernels: Kernels, x: View, w: View | None, prepared: int, y: View, header: int
    ) -> None:
        """Without ``w``, with the filter that is there."""
        plan, early = self.fitting(x, y), self.device.early_launches
        params = self.scale_params(x, header, prepared)
        scale.scale(kernels, params, False)
        for group in range(self.correlation.groups):
            if w:
                self._split(kernels, group, w, prepared, early)
        for group in range(self.correlation.groups):
            own = SPLIT_PARAMS.pack(
                header, scale.row(self.correlation, prepared, group), *plan.window
            )
            filters = View(self._parts(prepared, group), (0,) * 5)
            both = Params.of(own, plan.params(group, x, filters, y))
            first = early and group == 0
            kernels["winolab_direct_split"]((plan.grid, 1, 1), THREADS, both, first)
        scale.scan(kernels, self.device, params)

    @property
    def window(self) -> tuple[int, int]:
        """Outputs of a row of a phase, and rows: of an image, where all positions are one row."""
        if self.flat:
            return math.prod(self.correlation.output), 1
        return self.axes[2].outputs, self.axes[1].outputs

    def _filters(self, group: int, w: View) -> TensorMap:
        """The tensor map of a group's parts: of 32 channels, taps, output channels."""
        c = self.correlation
        row = PAIR * CHANNELS * self.chunks
        steps = [row * math.prod(c.filter[i:]) for i in (3, 2, 1, 0)]
        sizes = (row, *c.filter[::-1], c.out_channels)
        shape = (PAIR * CHANNELS, 1, 1, 1, self.config.bm)
        return TensorMap.of(w.address, 2, sizes, tuple(steps), shape)


@lru_cache(maxsize=64)
def source(config: Config, rotated: bool, strided: bool) -> str:
    """The translation unit of one config."""
    constants = {"ROTATED": int(rotated), "STRIDED": int(strided), "SPLIT": 1}
    constants |= {"WIDE_OUT": 1, "BF16": 0, "N": 1}
    constants |= scale.constants() | scale.BLOCKS
    return made("Γ1(1,1) fp32_split", config, constants, "direct/split")


def plans(request: Request) -> Iterator[SplitPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    device, algorithm = request.device, request.algorithm
    if device.compute_capability != ARCHITECTURE:
        raise request.unfit("direct products by wgmma need {}.{}".format(*ARCHITECTURE))
    if algorithm and algorithm.kind != "direct":
        return  # others say what computes it
    c = counted(request.problem, request.direction)
    if not request.aligned or c.channels % VECTOR or c.out_channels % VECTOR:
        raise ValueError(
            f"direct products of split data need pixels that lie 16-byte aligned and groups of "
            f"multiples of {VECTOR} channels, not {c.channels} and {c.out_channels}"
        )
    if c.empty or not c.channels or 0 in c.input:
        raise ValueError("direct products on Tensor Cores need something to sum")
    if not checkable(math.prod(c.output[1:])):
        raise unchecked(c.output[1:])
    config, flat = request.config_of(Config), flattened(c)
    if config and not fits(config, c):
        raise ValueError(f"direct products of split data have no blocks {config} for these taps")
    for shape in (config,) if config else BLOCKS:
        half_empty = shape.bm > 32 and c.out_channels <= shape.bm // 2
        if config or (fits(shape, c) and not half_empty):
            yield _plan(request, c, shape, flat)


def fits(v: Config, c: Correlation) -> bool:
    """Whether the kernel has such blocks, and a copy so many taps."""
    has = v.bn == 128 and v.split_k == 1 and v.bm <= 256 and v.bm % 32 == 0
    return (
        has
        and serves(v, replace(c, rotated=c.rotated and v.bm % 64 == 0))
        and (not v.along or more(c, v) > 0)
    )


def _plan(request: Request, c: Correlation, config: Config, flat: bool) -> SplitPlan:
    what = request.direction, request.problem, c, "fp32_split", "float32"
    found = SplitPlan(*what, config, request.device, flat)
    return replace(found, predicted=seconds(found))


def seconds(plan: SplitPlan) -> float:
    """Predicted time, as of 16 bits: a step's products, copies and least time overlap, and so do
    all steps and what arrays take."""
    c, v, device = plan.correlation, plan.config, plan.device
    cycles, slots = device.clock / H100.clock, device.multiprocessors
    blocks = min(plan.work_tiles, slots)
    pixels = v.bn / (plan.axes[2].most if v.along else 1)
    work = products(PAIR) * v.bn * v.bm * CHANNELS
    multiplied = PRODUCTS * work / (H100.matrix * H100.clock)
    copied = blocks * 4 * CHANNELS * (pixels + v.bm) / COPIES
    step = overlapped(4, multiplied, copied, STEP) / cycles
    item = ITEM * v.bm / 256
    summed = sum(n * (taps * plan.chunks * step + item) for taps, n in turns(plan, slots))
    y = c.batch * math.prod(c.output) * c.out_channels
    size = 4 * (c.channels * c.batch * read(plan) + y) + 2 * c.groups * plan.prepared
    parts = plan.prepared * (SECTOR if c.rotated else 1) / FILTER
    arrays = size / (ARRAYS * device.memory_rate)
    return LAUNCHES + parts + c.groups * overlapped(3, summed, arrays)
