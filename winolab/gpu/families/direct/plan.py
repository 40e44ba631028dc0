"""Direct forward and backward data on wgmma, FP16 and BF16: nothing is transformed, no workspace.

Where images or filters are few, Γ's transforms take longer than the products that they save; and
products of 16-bit data are exact in FP32, so that little but the result's rounding is lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache

from winolab.algorithm import Algorithm, Problem, Tile, direct
from winolab.device import H100, Device
from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.gamma_ffma.cost import clusters
from winolab.gpu.families.gamma_wgmma.input import tensor_map
from winolab.gpu.families.nested.tiles import Box, box
from winolab.gpu.params import Kernels, Params, TensorMap, View
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import ITEMSIZE, BasePlan, Request
from winolab.options import KernelConfig

ARCHITECTURE = (9, 0)  # wgmma: no other compute capability has it
SIZE, VECTOR, KC = 2, 8, 64  # bytes of an element; channels of a store, of a step
DEPTH = 16  # channels of a product
ROW_BYTES = SIZE * KC
MOST_TAPS = 9  # of a row that a copy of x serves
THREADS, BARRIERS = 384, 16  # of a block; bytes of a stage's barriers
SPLITS = (2, 4, 8)
PARAMS = layout("DirectParams", "direct/kernel")

# Fitted to 748 times of an H100 and 841 of an H200 in throughput_variants.jsonl (rms 6 % of what is
# picked, which takes 0.1 and 0.7 % more than the fastest): seconds of a launch, around the sum of a
# work tile of SUMS, and of a cluster's exchange; of a step at least, and its products over their
# least time; bytes a second that L2 gives all blocks, and that share of filters, which many ask for
# at once, fewer where output channels have several blocks; what a line more costs that a copy
# touches; bytes a second of arrays that are read and written once.
SUMS = 128 * 256
LAUNCH, ITEM, TOGETHER = 5.9e-6, 2.5e-6, 2.2e-6
STEP, PRODUCTS = 0.2e-6, 1.18
COPIES, SHARED, ASKEW, ARRAYS = 9.3e12, 0.32, 0.53, 2.85e12


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernel: policies of direct/kernel.cuh, by its names."""

    bm: int  # output positions of a block
    bn: int  # output channels of a block
    x_stages: int
    w_stages: int
    along: int = 0  # whether a copy of x serves all taps of a filter row
    split_k: int = 1  # blocks of a cluster that share a sum

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory."""
        pixels = self.bm + MOST_TAPS - 1 if self.along else self.bm
        size = ROW_BYTES * (self.x_stages * pixels + self.w_stages * self.bn)
        return size + (self.x_stages + self.w_stages) * BARRIERS

    @property
    def splits(self) -> tuple[int, ...]:
        """How many blocks may share a sum: each finishes as many eights of channels."""
        return tuple(n for n in SPLITS if self.bn // 8 % n == 0)

    def __str__(self) -> str:
        names = ("along", "split_k")
        changed = [f"{n}={v}" for n in names if (v := getattr(self, n)) != getattr(Config, n)]
        stages = f"{self.x_stages}+{self.w_stages}"
        return " ".join([f"{self.bm}x{self.bn}x{KC} stages={stages}", *changed])


# Positions × output channels of blocks whose sums fill the registers, as far as they have
# channels: stages of x and w, and of such that a copy of x serves a filter row. Channels that 128
# or 256 do not divide have blocks of their own.
BLOCKS = tuple(
    Config(bm, bn, *stages, along)
    for (bm, bn), pairs in {
        (128, 256): ((4, 4), (3, 5)),
        (128, 224): ((5, 5), (4, 5)),
        (128, 192): ((5, 5), (4, 6)),
        (256, 160): ((4, 4), (3, 6)),
        (128, 160): ((6, 6), (4, 7)),
        (256, 128): ((4, 4), (3, 7)),
        (128, 128): ((6, 6), (4, 8)),
        (256, 96): ((5, 5), (4, 7)),
        (256, 64): ((5, 5), (4, 9)),
        (128, 64): ((8, 8), (5, 12)),
    }.items()
    for along, stages in enumerate(pairs)
)


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
        return _more(self.correlation, self.config)

    @property
    def box(self) -> Box:
        """Output positions of a block: neighbours of a row, rows, images."""
        return _box(self.walked, self.config)

    @property
    def walked(self) -> Correlation:
        """What blocks are of: where all positions are one row, an image of that row."""
        return _row(self.correlation) if self.flat else self.correlation

    @property
    def blocks_n(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // self.config.bn)

    @property
    def work_tiles(self) -> int:
        """Blocks' worth of work of a group."""
        return self.blocks_n * self.box.blocks * self.walked.output[0]

    @property
    def chunks(self) -> int:
        """Steps of a tap."""
        return -(-self.correlation.channels // KC)

    @property
    def steps(self) -> int:
        """Steps of a sum."""
        return math.prod(self.correlation.filter) * self.chunks

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
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"block      {v.bn} channels × {b.images} images × {b.height} × {b.width} outputs, "
                f"{KC} channels a step{row}",
                f"policies   {v}",
                f"grid       {self.grid} blocks of {THREADS} threads, "
                f"{self.work_tiles} work tiles of "
                f"{self.steps} steps",
                f"memory     {v.shared_memory} B shared, no workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of ``winolab_direct``."""
        wide = self.out_dtype == "float32"
        return source(self.precision, wide, self.config, self.correlation.rotated, self.rest)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_direct": self.config.shared_memory}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        c = self.correlation
        gaps = not (_dense(a, c.batch, c.input) and _dense(out, c.batch, c.output))
        plan = replace(self, flat=False) if self.flat and gaps else self
        for group in range(c.groups):
            kernels["winolab_direct"]((plan.grid, 1, 1), THREADS, plan.params(group, a, b, out))

    def params(self, group: int, x: View, w: View, y: View) -> Params:
        """Parameters of a group's convolution."""
        c, b = self.walked, self.box
        pitch = b.width + self.more
        shape = (KC, pitch, b.height, 1, b.images)
        return PARAMS.pack(
            tensor_map(c, x, c.channels, group, SIZE, shape),
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
            self.blocks_n,
            self.work_tiles,
            c.batch,
            *c.output,
            c.out_channels,
            *c.padding,
            *c.filter,
            self.chunks,
            pitch,
        )

    def _filters(self, group: int, w: View) -> TensorMap:
        """The tensor map of a group's filter: neighbouring channels, taps, the other channels."""
        c = self.correlation
        inner, outer = c.channels, c.out_channels
        if c.rotated:
            inner, outer = outer, inner
        sizes = (inner, *c.filter[::-1], outer)
        shape = (KC, 1, 1, 1, KC if c.rotated else self.config.bn)
        address = w.address + SIZE * group * outer * w.strides[0]
        return TensorMap.of(address, SIZE, sizes, w.strides[3::-1], shape)


@lru_cache(maxsize=64)
def source(precision: str, wide: bool, config: Config, rotated: bool, rest: int) -> str:
    """The translation unit of one config; ``wide``: results in FP32; ``rest``: DirectPlan's."""
    constants = {name.upper(): value for name, value in asdict(config).items()}
    constants |= {"BF16": int(precision == "bf16"), "ROTATED": int(rotated), "REST": rest}
    constants |= {"SHARED": config.shared_memory, "WIDE_OUT": int(wide)}
    return unit(
        f"Γ1(1,1) {precision}, {config}",
        constants,
        {},
        ("direct/kernel",),
    )


def plans(request: Request) -> Iterator[DirectPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    device, algorithm = request.device, request.algorithm
    if device.compute_capability != ARCHITECTURE:
        raise request.unfit("direct products by wgmma need {}.{}".format(*ARCHITECTURE))
    if algorithm and algorithm.kind != "direct":
        raise ValueError(f"direct products do not compute {algorithm}")
    c = Correlation.of(request.problem, request.direction)
    if not request.aligned or c.channels % VECTOR or c.out_channels % VECTOR:
        raise ValueError(
            f"direct products on Tensor Cores need pixels that lie 16-byte aligned and groups of "
            f"multiples of {VECTOR} channels, not {c.channels} and {c.out_channels}"
        )
    if c.empty or not c.channels:
        raise ValueError("direct products on Tensor Cores need something to sum")
    flat = {*c.filter} == {1} and not any(c.padding) and c.input == c.output
    config = request.config_of(Config)
    if config and not _serves(config, c):
        raise ValueError(f"direct products of {c.filter[2]} taps have no blocks {config}")
    offered = configs(_row(c) if flat else c, device)
    for shape in (config,) if config else offered:
        yield _plan(request, c, shape, flat)


def configs(c: Correlation, device: Device) -> Iterator[Config]:
    """Block shapes that the output channels do not leave half empty; clusters share sums where
    blocks are few."""
    width = c.filter[2]
    for shape in BLOCKS:
        half_empty = shape.bn > 64 and c.out_channels <= shape.bn // 2
        if half_empty or (shape.along and width == 1) or not _serves(shape, c):
            continue
        copies = math.prod(c.filter) // (width if shape.along else 1) * -(-c.channels // KC)
        blocks = _box(c, shape).blocks * c.output[0] * -(-c.out_channels // shape.bn)
        yield shape
        for split_k in shape.splits:
            if split_k <= copies and blocks * split_k <= 2 * device.multiprocessors:
                yield replace(shape, split_k=split_k)


def _serves(v: Config, c: Correlation) -> bool:
    """Whether a copy has so many taps, and w 64s of such channels where they are neighbours."""
    taps = not v.along or c.filter[2] <= MOST_TAPS
    return taps and not (c.rotated and v.bn % 64) and v.split_k in (1, *v.splits)


def _more(c: Correlation, config: Config) -> int:
    """DirectPlan.more."""
    return c.filter[2] - 1 if config.along else 0


def _box(c: Correlation, config: Config) -> Box:
    """DirectPlan.box."""
    return box(c.batch, *c.output[1:], config.bm, _more(c, config))


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


def _plan(request: Request, c: Correlation, config: Config, flat: bool) -> DirectPlan:
    what = request.direction, request.problem, c, request.precision, request.stored
    found = DirectPlan(*what, config, request.device, flat)
    return replace(found, predicted=seconds(found))


def seconds(plan: DirectPlan) -> float:
    """Predicted time: a step's products, copies and least time overlap, and so do all steps and
    what arrays take."""
    c, v, device = plan.correlation, plan.config, plan.device
    cycles = device.clock / H100.clock
    memory = device.memory_rate
    slots = clusters(device, v.split_k)
    rounds, blocks = -(-plan.work_tiles // slots), v.split_k * min(plan.work_tiles, slots)
    inner = c.out_channels if c.rotated else c.channels
    pixels = v.bm / (c.filter[2] if v.along else 1)
    shared = min(1.0, SHARED * plan.blocks_n**0.25)
    copied = _lines(c.channels) * pixels + shared * _lines(inner) * v.bn
    steps = -(-c.channels // KC)  # of a tap
    depth = (steps - (1 - plan.rest * DEPTH / KC if plan.rest else 0)) / steps  # on average
    products = PRODUCTS * v.bm * v.bn * KC * depth / (H100.matrix * H100.clock)
    step = _overlapped(4, products, blocks * ROW_BYTES * copied / COPIES, STEP) / cycles
    item = ITEM * v.bm * v.bn / SUMS + TOGETHER * (v.split_k > 1)
    summed = rounds * (-(-plan.steps // v.split_k) * step + item)
    y = c.batch * math.prod(c.output) * c.out_channels
    read = c.channels * (c.batch * math.prod(c.input) + c.out_channels * math.prod(c.filter))
    size = SIZE * read + ITEMSIZE[plan.out_dtype] * y
    return c.groups * (LAUNCH + _overlapped(3, summed, size / (ARRAYS * memory)))


@cache
def _lines(channels: int) -> float:
    """What a copy of KC channels costs by its lines of ROW_BYTES, where pixels have so many."""
    size, steps = SIZE * channels, -(-channels // KC)
    places = range(0, math.lcm(size, ROW_BYTES), size)  # of pixels
    parts = [
        (at + s, at + min(s + ROW_BYTES, size)) for at in places for s in range(0, size, ROW_BYTES)
    ]
    touched = sum((end - 1) // ROW_BYTES - begin // ROW_BYTES + 1 for begin, end in parts)
    return 1 + ASKEW * (touched / (len(places) * steps) - 1)


def _overlapped(power: int, *seconds: float) -> float:
    """The time of what goes on at once, which is rarely as fast as the slowest alone."""
    return sum(s**power for s in seconds) ** (1 / power)
