"""The compile-time shapes of the depthwise kernels, and which of them serve a problem."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from winolab.gpu.families.depthwise.shape import Depthwise
from winolab.gpu.params import LINE, VECTOR
from winolab.gpu.planner.correlation import without_depth
from winolab.options import KernelConfig

THREADS = 128  # of a block, that compute
# Filters whose taps are template parameters, in three dimensions; others are arguments.
KNOWN = frozenset(
    [
        *((1, 1, r) for r in range(1, 32)),  # sequences' layers have up to 31
        *((1, r, 1) for r in (3, 5, 7)),
        *((1, r, r) for r in (3, 5, 7)),
        (3, 3, 3),
    ]
)
MOST_STRIDE = 2  # that is a template parameter
REGISTERS = 200  # that sums, taps and columns of a thread may take
MOST_STATIC = 48 << 10  # bytes of shared memory that may be declared
MOST_BOX = 256  # elements of a dimension of a bulk tensor copy
FEW = 1 << 20  # outputs that plain kernels compute
MOST_READ = 112  # registers of a thread for what it reads of x at once
MOST_GRID = (1 << 16) - 1  # blocks in the second and the third dimension
RECIPROCAL = 1 << 30  # over a divisor, rounded up
MOST_CHUNK = 49  # taps that a thread of planes.cuh has in registers
READ_AHEAD = 64  # and registers for rows on their way
MOST_OUTPUTS = 49, 32  # and outputs, all of which are unrolled; of GATHER
MOST_SUMMED = 256  # products of a gradient's tile: the compiler asks for rows one by one among more


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of a kernel.

    ``kind``: "rows" and "scatter" have taps in registers and walk down rows, "plain" has outputs of
    one row and reads all that they meet at once, "any" has sizes as arguments. ``lanes`` threads
    of a block are neighbours in channels, ``vector`` channels each, and have ``columns`` outputs of
    a row. With ``stages`` a producer warp brings rows of x to shared memory, a ``group`` at a time,
    for ``strips`` strips next to each other. "planes" works on arrays that lie channels-first: a
    thread has ``columns`` of ``rows`` of one channel, and reads ``vector`` columns at once.
    """

    kind: str
    lanes: int
    vector: int
    columns: int
    strips: int = 0
    group: int = 0
    stages: int = 0
    rows: int = 0

    def __str__(self) -> str:
        if self.kind == "planes":
            return f"planes vector={self.vector} columns={self.columns} rows={self.rows}"
        text = f"{self.kind} {self.lanes}x{self.vector} columns={self.columns}"
        staged = f" strips={self.strips} group={self.group} stages={self.stages}"
        return text + staged if self.stages else text

    @property
    def memory_order(self) -> str:
        """How x and y lie."""
        return "nchw" if self.kind == "planes" else "nhwc"

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.lanes * self.vector

    @property
    def slots(self) -> int:
        """Threads of a block that have the same channels."""
        return THREADS // self.lanes

    @property
    def images(self) -> int:
        """Images that a block computes at once."""
        return self.slots // self.strips if self.stages else 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return THREADS + 32 * (self.stages > 0)


@dataclass(frozen=True)
class Stage:
    """What a stage holds in shared memory: boxes of x and of dy, neighbours first."""

    x: tuple[int, ...]
    dy: tuple[int, ...] | None
    bytes: int  # of both, each a multiple of LINE

    @classmethod
    def of(cls, d: Depthwise, v: Config, gradient: bool, itemsize: int) -> Stage:
        """The stage of stages.cuh."""
        advance, columns, rows = window(d, v)
        line = (v.strips - 1) * advance + columns
        x = (v.channels, line, v.group, d.filter[0], v.images)
        dy = (v.channels, v.strips * v.columns, v.group // rows, 1, v.images)
        boxes = (x, dy) if gradient else (x,)
        sizes = [v.channels * box[1] * box[2] * box[3] * box[4] * itemsize for box in boxes]
        return cls(x, dy if gradient else None, sum(-(-size // LINE) * LINE for size in sizes))


def window(d: Depthwise, v: Config) -> tuple[int, int, int]:
    """Columns of x from a strip to the next, of a strip, and rows of x of a step."""
    stride_height, stride_width = d.stride[1:]
    if v.kind == "scatter":
        own = v.columns // stride_width
        return own, own + (d.filter[2] - 1) // stride_width, 1
    return v.columns * stride_width, (v.columns - 1) * stride_width + d.filter[2], stride_height


@dataclass(frozen=True)
class Reach:
    """What the outputs of a planes thread meet of x along a dimension: the struct PlaneWindow of
    plane_rows.cuh, and where the first thread's window begins."""

    size: int
    advance: int
    begin: int
    rest: int

    @classmethod
    def of(cls, d: Depthwise, dimension: int, outputs: int, taps: int) -> Reach:
        """What so many neighbours meet at so many taps."""
        stride, dilation, pad = (v[dimension] for v in (d.stride, d.dilation, d.padding))
        if not d.gathered:
            size = (outputs - 1) * stride + (taps - 1) * dilation + 1
            return cls(size, outputs * stride, -pad, 0)
        whole, rest = divmod(pad, stride)
        before = max(0, -(-((taps - 1) * dilation - rest) // stride))
        size = (outputs - 1 + rest) // stride + before + 1
        return cls(size, outputs // stride, whole - before, rest)


def chunk(d: Depthwise) -> int:
    """Filter rows whose taps a planes thread has in registers; of GATHER all phases of some."""
    _, height, width = d.filter
    step = d.stride[1] if d.gathered else 1
    most = MOST_CHUNK // width // step * step
    return height if height * width <= MOST_CHUNK else max(step, most)


def accesses(d: Depthwise, v: Config) -> list[int]:
    """Elements that a planes thread reads of a row, by access, as plane_rows.cuh cuts them."""
    along = Reach.of(d, 2, v.columns, d.filter[2])
    offset = along.begin % v.vector
    found = []
    for first in range(0, offset + along.size, v.vector):
        begin, end = max(0, offset - first), min(v.vector, offset + along.size - first)
        size = 1
        while size < v.vector and begin // size * size + size < end:
            size *= 2
        found.append(size)
    return found


def ahead(d: Depthwise, v: Config, itemsize: int) -> int:
    """Rows of x that a planes thread has on their way at once."""
    words = sum(max(1, size * itemsize // 4) for size in accesses(d, v))
    down = Reach.of(d, 1, v.rows, chunk(d))
    return max(1, min(down.size, READ_AHEAD // words))


def planes(d: Depthwise, gradient: bool, itemsize: int) -> Iterator[Config]:
    """Configurations of planes.cuh, and of filter_planes.cuh: none of filters whose rows do not fit
    registers, all of whose taps the compiler unrolls (512 of a row took it 23 s, and spilled)."""
    if not without_depth(d) or (gradient and chunk(d) < d.filter[1]):
        return
    usual = {1, 2, 4, 7, 8}
    strides = [{s, 2 * s} if d.gathered else set() for s in d.stride[:0:-1]]
    for columns, rows in product(*(sorted(usual | more) for more in strides)):
        if d.gathered and (columns % d.stride[2] or rows % d.stride[1]):
            continue
        wide = columns >= 2 * max(d.output[2], d.stride[2] * d.gathered)
        if wide or rows >= 2 * max(d.output[1], d.stride[1] * d.gathered):
            continue
        along = Reach.of(d, 2, columns, d.filter[2])
        if along.size > REGISTERS:  # which ``accesses`` would count one by one
            continue
        vector = math.gcd(VECTOR // itemsize, d.input[2], along.advance)
        v = Config("planes", 1, vector, columns, rows=rows)
        most = max(8, MOST_SUMMED // d.taps) if gradient else MOST_OUTPUTS[d.gathered]
        if columns * rows <= most and plane_registers(d, v, itemsize) <= REGISTERS:
            yield v


def vector_stored(d: Depthwise, v: Config, itemsize: int) -> int:
    """Neighbours of y that a planes thread stores at once, or of dy that it reads."""
    return math.gcd(VECTOR // itemsize, d.output[2], v.columns)


def plane_registers(d: Depthwise, v: Config, itemsize: int) -> int:
    """About how many a planes thread's sums, taps and rows take: the compiler has half of the rows
    on their way, and the taps of two passes where there are several."""
    words = sum(max(1, size * itemsize // 4) for size in accesses(d, v))
    row = 0 if itemsize == 4 else Reach.of(d, 2, v.columns, d.filter[2]).size
    taps = chunk(d) * d.filter[2] * (1 + (chunk(d) < d.filter[1]))
    return v.rows * v.columns + taps + row + words * ahead(d, v, itemsize) // 2 + 12


def shared_memory(d: Depthwise, v: Config, gradient: bool, itemsize: int) -> int:
    """Bytes of the struct Shared of stages.cuh; 0 without stages."""
    if not v.stages:
        return 0
    size = v.stages * Stage.of(d, v, gradient, itemsize).bytes + (0 if gradient else LINE)
    size += 16 * v.stages
    return -(-size // LINE) * LINE


def static_memory(d: Depthwise, v: Config, gradient: bool, itemsize: int) -> int:
    """Bytes of shared memory that are declared: filters, or the sums of all threads."""
    if v.kind == "any":
        return 4 * 32 * (v.channels + 1)
    return d.taps * (4 * THREADS * v.vector if gradient else itemsize * v.channels)


def kind(d: Depthwise, gradient: bool) -> str:
    """The fastest kernel that computes it: "rows", "scatter" or "any"."""
    known = d.filter in KNOWN and max(d.stride[1:]) <= MOST_STRIDE
    if not known or (d.multiplier > 1 and (d.rotated or d.gathered)):
        return "any"
    if d.gathered and not gradient:
        return "scatter" if set(d.dilation[1:]) == {1} else "any"
    simple = all(1 in pair for pair in zip(d.stride[1:], d.dilation[1:], strict=True))
    return "rows" if simple else "any"


def registers(d: Depthwise, v: Config, gradient: bool) -> int:
    """About how many a thread's sums, taps and columns take."""
    if v.kind == "any":
        return 64
    _, read, _ = window(d, v)
    if v.kind == "plain":
        return v.vector * (read * d.filter[0] * d.filter[1] + v.columns) + 40
    open_ = max(d.filter[1], d.stride[1]) if v.kind == "scatter" else -(-d.filter[1] // d.stride[1])
    kept = d.taps + open_ * v.columns + read * (1 if v.stages else 2)
    kept += v.columns if gradient and not v.stages else 0
    return v.vector * kept + 24


def configs(
    d: Depthwise, gradient: bool, itemsize: int, aligned: bool, stages: int = 0
) -> Iterator[Config]:
    """Configurations that serve a problem: vectors as far as channels and alignment allow.

    With ``stages``, those whose registers suffice if rows are in shared memory.
    """
    made = kind(d, gradient)
    columns = {"rows": (4, 7, 8), "scatter": (4, 8), "any": (8, 16)}[made]
    if made == "any" and not slides(d):
        columns = (4,)
    for vector in (1, 2, 4, 8):
        if vector > 1 and not vectors(d, made, vector, itemsize, aligned):
            break
        for lanes in (4, 8, 16, 32):
            if lanes > 4 and lanes * vector >= 2 * d.channels:
                break
            for count in columns:
                v = Config(made, lanes, vector, count)
                used = registers(d, replace(v, stages=stages), gradient)
                fits = static_memory(d, v, gradient, itemsize) <= MOST_STATIC
                if (vector, count) == (1, columns[0]) or (fits and used <= REGISTERS):
                    yield v


def staged(d: Depthwise, gradient: bool, itemsize: int, aligned: bool) -> Iterator[Config]:
    """Configurations with stages, for arrays that bulk tensor copies read."""
    made = kind(d, gradient)
    whole = aligned and d.channels * itemsize % VECTOR == 0 and d.multiplier == 1
    unit_depth = (d.stride[0], d.dilation[0]) == (1, 1)
    plain = set(d.dilation[1:]) == {1} and (d.filter[0] == 1 or (made == "rows" and unit_depth))
    if made == "any" or not whole or not plain or (d.gathered and d.stride[0] > 1):
        return
    for v in configs(d, gradient, itemsize, aligned, stages=2):
        size = v.channels * itemsize
        if size % VECTOR or size < min(LINE, d.channels * itemsize) // 2:
            continue
        _, _, rows = window(d, v)
        need = d.windows(2)[1] * d.stride[2] if v.kind == "scatter" else d.output[2]
        need = -(-need // v.columns)
        strips = min(v.slots, 1 << max(0, (need - 1)).bit_length())
        while strips > 1 and -(-need // strips) * strips > 1.25 * need:
            strips //= 2
        if v.slots // strips > max(1, 2 * d.batch):
            continue
        group = rows if d.filter[1] > 3 else 2
        for stages in (4, 3, 2):
            found = replace(v, strips=strips, group=group, stages=stages)
            stage = Stage.of(d, found, gradient, itemsize)
            fits = max(stage.x + (stage.dy or ())) <= MOST_BOX
            size = shared_memory(d, found, gradient, itemsize)
            if fits and registers(d, found, gradient) <= REGISTERS and size <= 56 << 10:
                yield found
                break


def plain(d: Depthwise, gradient: bool, itemsize: int, aligned: bool) -> Iterator[Config]:
    """Configurations of plain.cuh, of few outputs."""
    served = d.filter in KNOWN and d.multiplier == 1 and not (gradient or d.gathered)
    if not (served and d.outputs <= FEW and d.batch * d.output[0] <= MOST_GRID):
        return
    slid = d.dilation[2] == 1 and d.stride[2] <= MOST_STRIDE  # neighbours share columns
    for vector in (1, 2, 4, 8):
        if vector > 1 and not vectors(d, "plain", vector, itemsize, aligned):
            break
        lanes = _lanes(d.channels, vector, itemsize)
        for columns in (1, 2, 4) if slid else (1,):
            v = Config("plain", lanes, vector, columns)
            read = d.filter[0] * d.filter[1] * window(d, v)[1] * max(1, vector * itemsize // 4)
            strips = -(-d.output[2] // columns)
            threads = d.output[1] * strips + v.slots  # at most, of a lane
            counted = threads * strips < RECIPROCAL and threads <= MOST_GRID * v.slots
            if counted and read <= MOST_READ and columns < 2 * d.output[2]:
                yield v


def _lanes(channels: int, vector: int, itemsize: int) -> int:
    """The most of which an eighth more than need be is idle, and that read half a line."""
    least = min(LINE // 2, channels * itemsize)
    wide = [n for n in (4, 8, 16, 32) if n * vector * itemsize >= least] or [32]
    covered = {n: -(-channels // (n * vector)) * n for n in wide}
    return max(n for n, count in covered.items() if 8 * count <= 9 * min(covered.values()))


def vectors(d: Depthwise, made: str, vector: int, itemsize: int, aligned: bool) -> bool:
    """Whether so many channels are read at once."""
    whole = aligned and d.channels % vector == 0 and vector * itemsize <= VECTOR
    return made != "any" and d.multiplier == 1 and whole


def slides(d: Depthwise) -> bool:
    """Whether neighbouring outputs of a phase meet neighbouring columns."""
    return d.stride[2] == 1 and not d.gathered
