"""Filter gradients as the Ω kernels see them: units, segments, workspace, and how many of each.

Pure Python. gradient_scheduler.cuh says what a unit and a work tile are, split_k.cuh adds up what
the segments computed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from winolab.algorithm import Algorithm, Problem, Tile
from winolab.arguments.variants import FUSED
from winolab.arguments.words import plural
from winolab.device import H100, Device
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.epilogue import finished
from winolab.gpu.params import Launcher, Params, View, in_order
from winolab.gpu.planner.correlation import check_unit, three
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying
from winolab.points import check_served
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.error.metrics import ADMISSIBLE, error_ratio

# As many segments as bring the predicted time within this of the least: each costs workspace.
NEAR_FASTEST = 1.02
WORKSPACE_OF_DATA = 1.0  # the largest workspace, in multiples of the data, if no limit is given
WAVES = 24  # of blocks, up to which segments are counted to fill them
ADMITTED = 8  # the largest alpha whose error ref.error.metrics.error_ratio admits
POSITIONS = 1 << 31  # the kernels count them in 32 bits
TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}  # as the kernels of gradients name them
PARAMS = layout("GradientParams", "gradient_scheduler")
REDUCE_PARAMS = layout("ReduceParams", "split_k")
REDUCE_THREADS = 256
MINIMAL = {"INPUTS": "ALPHA"}  # a macro of gradient_scheduler.cuh, where no modulus has more states
MOST_PARTS = REDUCE_THREADS // 32  # of an element's buckets: so that a warp's are neighbours


@dataclass(frozen=True)
class Gradient:
    """dw[m, tap, c] = Σ dy[m] · x[c] per group, always three spatial dimensions.

    Tap t meets output o at place o s − padding + t d of x.
    """

    batch: int
    groups: int
    channels: int  # of a group of x
    out_channels: int  # of a group of dy
    input: tuple[int, int, int]
    output: tuple[int, int, int]
    filter: tuple[int, int, int]
    padding: tuple[int, int, int]  # before the first element
    stride: tuple[int, int, int] = (1, 1, 1)
    dilation: tuple[int, int, int] = (1, 1, 1)

    @classmethod
    def of(cls, problem: Problem, *, unit: bool = True) -> Gradient:
        """The filter gradient of ``problem``. ``unit``: raise ValueError for strides and dilation,
        which few kernels serve."""
        if unit:
            check_unit(problem)
        return cls(
            problem.batch,
            problem.groups,
            problem.in_channels // problem.groups,
            problem.out_channels // problem.groups,
            three(problem.input, 1),
            three(problem.output, 1),
            three(problem.filter, 1),
            three(tuple(lo for lo, _ in problem.padding), 0),
            three(problem.stride, 1),
            three(problem.dilation, 1),
        )

    @property
    def steps(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Stride and dilation."""
        return self.stride, self.dilation

    @property
    def sizes(self) -> tuple[int, ...]:
        """dw's."""
        return self.groups * self.out_channels, *self.filter, self.channels

    @property
    def weights(self) -> int:
        """Elements of dw."""
        return math.prod(self.sizes)

    @property
    def data(self) -> int:
        """Bytes of x, dy and dw in FP32."""
        x = math.prod(self.input) * self.channels
        dy = math.prod(self.output) * self.out_channels
        return 4 * (self.batch * self.groups * (x + dy) + self.weights)

    @property
    def flops(self) -> int:
        """Operations of direct convolution, an FMA being two."""
        return 2 * self.batch * math.prod(self.output) * self.weights

    def rows(self, dimension: int, tap: int) -> tuple[int, int]:
        """The outputs along a dimension that meet an input at ``tap``: first, last + 1."""
        step = self.stride[dimension]
        low = self.padding[dimension] - tap * self.dilation[dimension]
        first = max(0, -(-low // step))
        last = -(-(self.input[dimension] + low) // step)
        return first, max(first, min(self.output[dimension], last))

    def share(self, dimension: int) -> float:
        """Share of the outputs along a dimension that meet an input, averaged over the taps."""
        taps = self.filter[dimension]
        met = (last - first for first, last in (self.rows(dimension, tap) for tap in range(taps)))
        return sum(met) / (taps * self.output[dimension])

    @cached_property
    def met(self) -> float:
        """The share of dy's rows that meet an input, averaged over the taps."""
        return self.share(0) * self.share(1)

    @property
    def products(self) -> float:
        """Products of an element of dw, those whose input exists, averaged over the taps."""
        return self.batch * math.prod(self.output) * self.met * self.share(2)

    def units(self, tile: Tile, pitch: int) -> int:
        """Units of a row of taps whose rows all meet inputs. Raises ValueError for too many."""
        positions = self.batch * self.output[0] * self.output[1] * pitch
        if positions + 256 * tile.alpha >= POSITIONS:
            raise ValueError(f"dy has {positions} positions; the Ω kernels count up to 2^31")
        return -(-positions // tile.r)

    def whole_pitch(self, tile: Tile) -> int:
        """Positions of a row that holds whole units."""
        return -(-self.output[2] // tile.r) * tile.r

    def wrapped_pitch(self, tile: Tile) -> int | None:
        """Positions of a row whose last unit runs on into the next; None where none may.

        The n - 1 columns of x after a row's last unit are the next row's first ones where both are
        padding, as far as that holds for every row of taps.
        """
        whole = self.output[2] + tile.n - 1
        last_taps = (-(-self.filter[2] // tile.n) - 1) * tile.n
        shared = max(0, min(self.padding[2] - last_taps, whole - self.input[2] - self.padding[2]))
        pitch = whole - shared
        return pitch if tile.inputs <= pitch < self.whole_pitch(tile) else None

    def pitches(self, tile: Tile, wrap: int | None) -> Iterator[int]:
        """The whole pitch and, where there is one, the wrapped one; of a config that has ``wrap``,
        the one that it is for."""
        for pitch in (self.whole_pitch(tile), self.wrapped_pitch(tile)):
            if pitch is not None and wrap in (None, int(pitch % tile.r > 0)):
                yield pitch


def narrow_rows(tile: Tile, width: int) -> bool:
    """Whether rows of dy fill units so badly that outputs are small against a unit's states."""
    return 5 * width < 4 * tile.r


@dataclass(frozen=True)
class Timing:
    """What a kernel takes: ``unit``, ``work_tile`` and ``output`` are seconds of one block."""

    blocks: int  # of one segment
    slots: int  # blocks that the GPU holds
    unit: float  # of the sum
    work_tile: float  # whatever does not depend on the sum's length
    step: int  # units of a stage
    fold: int = POSITIONS  # units after which a sum is transformed
    output: float = 0.0  # of such a transform
    device: Device = H100
    model: DeviceModel = MODEL
    filled: bool = False  # whether threads that share elements add up segments of few weights
    gather: float | None = None  # seconds of the launch that adds up, beside what it reads

    def work(self, units: int, segments: int) -> tuple[int, int, int]:
        """The block that has most: its work tiles, units of each, and transforms of its sum."""
        length = -(-units // (segments * self.step)) * self.step
        return -(-self.blocks * segments // self.slots), length, -(-length // self.fold)

    def seconds(self, units: int, segments: int) -> float:
        """The main kernel's time."""
        work_tiles, length, outputs = self.work(units, segments)
        block = length * self.unit + self.work_tile + outputs * self.output
        return work_tiles * block + self.model.device.launch

    def whole(self, units: int, segments: int, bucket: int) -> float:
        """The same with the launch that adds up segments' sums, of so many bytes each."""
        added = adding(self.device, segments, bucket, self.model, int(not self.filled), self.gather)
        return self.seconds(units, segments) + added


def adding(device: Device, segments: int, bucket: int, model: DeviceModel, parts: int = 0,
           gather: float | None = None) -> float:  # fmt: skip
    """Seconds of the launch that adds up segments' sums of ``bucket`` bytes, ``parts`` threads each
    element, 0: as ``reduce`` has it; ``gather``: beside reading, a launch's where none."""
    if segments == 1:
        return 0.0
    blocks = -(-bucket // (4 * REDUCE_THREADS))
    parts = parts or parts_of(segments, blocks, device.multiprocessors)
    copied = copying(device, bucket * (segments + 1), model)
    added = max(copied, -(-segments // parts) * model.device.added)
    return (model.device.launch if gather is None else gather) + added


@dataclass(frozen=True)
class Segments:
    """Into how many parts the sum is cut; the workspace in bytes, the predicted time in seconds."""

    count: int
    workspace: int
    seconds: float


def choose(
    gradient: Gradient,
    units: int,
    timing: Timing,
    limit: int | None = None,
    *,
    first: bool = True,
    count: int | None = None,
) -> Segments:
    """The fewest segments within NEAR_FASTEST of the least predicted time, the reduction included.

    ``limit`` bounds the workspace in bytes (None: WORKSPACE_OF_DATA times the data); ``first`` says
    whether dw itself is the first segment's bucket; ``count`` fixes the number of segments. Raises
    ValueError, naming the least workspace, where none fits.
    """
    bucket = 4 * gradient.weights

    def made(segments: int) -> Segments:
        buckets = 0 if segments == 1 else segments - first
        return Segments(segments, buckets * bucket, timing.whole(units, segments, bucket))

    most = WORKSPACE_OF_DATA * gradient.data if limit is None else limit
    found = [made(n) for n in ({count} if count else counts(units, timing))]
    fitting = [s for s in found if s.workspace <= most or (limit is None and s.count == count)]
    if not fitting:
        least = min(s.workspace for s in found)
        fewer = f", or name fewer segments than {count}" if count else ""
        raise ValueError(
            f"a workspace of {least} B is the smallest that this gradient needs; "
            f"the limit is {limit} B: raise it{fewer}"
        )
    enough = NEAR_FASTEST * min(s.seconds for s in fitting)
    return next(s for s in fitting if s.seconds <= enough)


def counts(units: int, timing: Timing) -> list[int]:
    """Numbers of segments worth considering, ascending: one, and those that fill waves."""
    filling = {timing.slots * wave // timing.blocks for wave in range(1, WAVES)}
    few = range(1, 9)
    most = max(1, units // timing.step)
    return sorted(n for n in {1, *filling, *few} if 1 <= n <= most)


def of_this_gpu(algorithm: Algorithm | None) -> None:
    """Raise ValueError for WinRS as another GPU would run it."""
    if algorithm and algorithm.device:
        raise ValueError(
            f"{algorithm}: the CUDA kernels are planned for the GPU that they run on; name the "
            "algorithm without a device"
        )


def instructions(tile: Tile) -> tuple[int, int]:
    """Those of G and of BT, to within one: planning builds no program."""
    alpha = tile.alpha
    if alpha == 1:
        return 0, 0
    return (alpha // 2 - 1) * (tile.r + 1) + alpha // 16, {4: 4, 8: 24, 16: 112}[alpha]


@lru_cache
def admitted(tile: Tile, points: str) -> bool:
    """Whether a tile that is admissible at the best points is so at these, where these serve it."""
    return points == "best" or error_ratio(tile, points) <= ADMISSIBLE


def tiles(
    gradient: Gradient,
    algorithm: Algorithm | None,
    kernels: Iterable[Tile],
    variants: Collection[str] = (FUSED,),
) -> Iterator[Tile]:
    """The kernels' tiles that may run: the algorithm's own, or the admissible ones.

    A filter width that is no multiple of n runs in wider tiles whose last taps are not written; but
    where the algorithm names the tile, n divides the width. ``variants`` are those that the kernels
    have. Raises ValueError for algorithms that are not filter gradients of these kernels.
    """
    of_this_gpu(algorithm)
    width = gradient.filter[2]
    if algorithm is None or (algorithm.kind == "winrs" and not algorithm.scaling):
        points = algorithm.points if algorithm else "best"
        kernels = tuple(kernels)
        check_served(points, set(kernels) - {DIRECT}, "a kernel of winrs")
        for tile in kernels:
            if tile == DIRECT or (width > 1 and tile.alpha <= ADMITTED and admitted(tile, points)):
                yield tile
        return
    if algorithm.kind == "direct":
        yield DIRECT
        return
    if algorithm.kind != "omega" or algorithm.scaling:
        raise ValueError(
            "the CUDA kernels compute filter gradients by omega, winrs and direct without "
            f"options, not {algorithm}"
        )
    if algorithm.variant and algorithm.variant not in variants:
        raise ValueError(f"{algorithm}: sums in FP16 are those of kernels in fp16; use {FUSED!r}")
    (tile,) = algorithm.tiles
    if tile not in kernels:
        names = ", ".join(f"{t.alpha}:{t.n}:{t.r}" for t in kernels if t != DIRECT)
        raise ValueError(f"{algorithm}: the CUDA kernels are omega:{names}")
    if width % tile.n:
        raise ValueError(
            f"{algorithm} computes {plural(tile.n, 'tap')}; the filter has {width}: its width must "
            "be a multiple; use winrs or direct"
        )
    yield tile


def parameters(
    g: Gradient,
    views: tuple[View, View, View],
    buckets: int,
    block: tuple[int, int, int],
    segments: int,
    pitch: int,
    blocks: int,
    fold: int = 0,
    wanted: int = 0,
) -> Params:
    """Parameters of a main kernel, over ``views`` x, dy and dw.

    ``block``: input and output channels and taps of a row that a block computes; ``blocks``: of a
    segment; ``fold``: stages after which it adds its sums to dw, 0: at the end.
    """
    x, dy, dw = views
    # Units that run on into the next row count how far it is in 32 bits.
    x, dy = x.alone(g.batch, g.input), dy.alone(g.batch, g.output)
    sides = zip((g.channels, g.out_channels, g.filter[2]), block, strict=True)
    return PARAMS.pack(
        x.address,
        dy.address,
        dw.address,
        buckets,
        *x.strides[:3],
        *dy.strides[:3],
        *dw.strides,
        x.strides[3],
        dy.strides[3],
        g.batch,
        *g.input,
        *g.output,
        *g.padding,
        *g.filter,
        g.channels,
        g.out_channels,
        g.groups,
        *(-(-whole // part) for whole, part in sides),
        segments,
        pitch,
        fold,
        blocks * segments,
        wanted,
    )


def reduce(
    kernel: Launcher, sizes: tuple[int, ...], dw: View, buckets: int, count: int, early: bool,
    wanted: int = 0, multiprocessors: int = 0,
) -> None:  # fmt: skip
    """Launch the sum of ``count`` buckets at address ``buckets`` into dw, or a y with its epilogue.

    ``early``: Kernel's; ``wanted``: fallback.cuh's flags; ``multiprocessors``: to be filled by
    threads that add up parts of an element's buckets; 0: one adds up all, in the stated order.
    """
    dense = int(in_order(sizes, dw.strides, 1))
    params = REDUCE_PARAMS.pack(buckets, dw.address, *dw.strides, *sizes, count, dense, wanted)
    params = finished(params, dw, 0, "float32")
    blocks = -(-math.prod(sizes) // REDUCE_THREADS)
    kernel((blocks, parts_of(count, blocks, multiprocessors), 1), REDUCE_THREADS, params, early)


def parts_of(count: int, blocks: int, multiprocessors: int) -> int:
    """Threads that add up equal parts of as many buckets, a power of two: more than one where many
    buckets are left to few blocks (docs/notes/088-who-adds-up-shares.md)."""
    parts = 1
    while parts < MOST_PARTS and 8 * parts < count and blocks * parts < 4 * multiprocessors:
        parts *= 2
    return parts
