"""Block shapes of direct products on wgmma and on FFMA units, and which of them serve a problem."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.device import Device
from winolab.gpu.families import im2col_maps
from winolab.gpu.families.axes import axes
from winolab.gpu.families.boxes import Box, box
from winolab.gpu.planner.correlation import Correlation
from winolab.options import KernelConfig

KC = 64  # channels of a step
ROW_BYTES, BARRIERS = 128, 16  # of a position's or an output channel's step; of a stage's barriers
MOST_MORE = 8  # pixels of a row of a copy of x beside the outputs'
SPLITS = (2, 4, 8)
POSITIONS, MOST_CHANNELS = (128, 256), 256  # of a block: positions, most output channels


SPLIT_CHANNELS, PAIR = 32, 2  # of a step of split products; parts of a number
ROWS = 16  # output channels whose rows of parts are exchanged
FACTORS = 8  # bytes of what results in an output channel are scaled back by
# The block of ffma.cuh: threads, positions, output channels, and channels of a step.
FFMA_THREADS, FFMA_POSITIONS, FFMA_CHANNELS, FFMA_DEPTH = 256, 64, 64, 16


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernel: policies of direct/kernel.cuh, by its names."""

    bn: int  # output positions of a block
    bm: int  # output channels of a block
    x_stages: int
    w_stages: int
    along: int = 0  # whether a copy of x serves all taps of a filter row
    split_k: int = 1  # blocks of a cluster that share a sum

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory."""
        pixels = self.bn + MOST_MORE if self.along else self.bn
        size = ROW_BYTES * (self.x_stages * pixels + self.w_stages * self.bm)
        return size + (self.x_stages + self.w_stages) * BARRIERS

    @property
    def runs(self) -> bool:
        """Whether a kernel has this shape, of output channels that wgmma takes and, of 16 bits,
        POSITIONS."""
        wide = self.bm in range(32, MOST_CHANNELS + 1, 32)
        return wide and min(self.x_stages, self.w_stages) > 0 and self.along <= 1

    @property
    def split_shared_memory(self) -> int:
        """The same of split data: with the factors of its output channels."""
        return self.shared_memory + FACTORS * self.bm

    @property
    def splits(self) -> tuple[int, ...]:
        """How many blocks may share a sum: each finishes as many eights of channels."""
        return tuple(n for n in SPLITS if self.bm // 8 % n == 0)

    def __str__(self) -> str:
        names = ("along", "split_k")
        changed = [f"{n}={v}" for n in names if (v := getattr(self, n)) != getattr(Config, n)]
        stages = f"{self.x_stages}+{self.w_stages}"
        return " ".join([f"{self.bn}x{self.bm}x{KC} stages={stages}", *changed])


# Positions × output channels of blocks whose sums fill the registers, as far as they have
# channels: stages of x and w, and of such that a copy of x serves a filter row. Channels that 128
# or 256 do not divide have blocks of their own.
BLOCKS = tuple(
    Config(bn, bm, *stages, along)
    for (bn, bm), pairs in {
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
LEAST = min(v.bn * v.bm for v in BLOCKS)  # sums of a block
# The same of split products: channels whose slices wgmma has, and by a block's positions the most
# that registers hold.
SLICED = (32, 64, 96, 128, 192, 256)
WIDEST = {128: 256, 192: 128, 256: 96}
FEWEST = min(WIDEST)
SPLIT_BLOCKS = (
    Config(128, 256, 4, 4),
    Config(128, 192, 5, 5),
    Config(128, 128, 6, 6),
    Config(128, 96, 7, 7),
    Config(128, 64, 8, 8),
    Config(128, 32, 9, 9),
    Config(192, 128, 5, 5),
    Config(256, 96, 5, 5),
    Config(256, 64, 5, 5),
    Config(256, 32, 6, 6),
)


@dataclass(frozen=True)
class FfmaConfig(KernelConfig):
    """The one block shape that the kernel has."""

    def __str__(self) -> str:
        return f"{FFMA_POSITIONS}x{FFMA_CHANNELS}x{FFMA_DEPTH}"


def configs(c: Correlation, device: Device) -> Iterator[Config]:
    """Block shapes that the output channels do not leave half empty; clusters share sums where
    blocks are few.

    The smallest blocks, where those of all groups are few, are left to copies that walk positions:
    of 64 layers those took 0.81 of the time (docs/notes/107). Copies that serve a filter row stay,
    of a block a sum: one layer was as fast by them.
    """
    width = axes(c)[2].most  # taps of a row
    walked = im2col_maps.unserved(c) is None
    for shape in BLOCKS:
        least = (
            walked
            and shape.bn * shape.bm == LEAST
            and c.groups * tiles_of(c, shape) <= device.multiprocessors
        )
        if least and not shape.along:
            continue
        half_empty = shape.bm > 64 and c.out_channels <= shape.bm // 2
        if half_empty or (shape.along and width == 1) or not serves(shape, c):
            continue
        yield shape
        if not least:
            yield from clusters_of(shape, c, device, KC)


def split_configs(c: Correlation) -> Iterator[Config]:
    """Block shapes of split products, a block a sum."""
    for shape in SPLIT_BLOCKS:
        half_empty = shape.bm > 32 and c.out_channels <= shape.bm // 2
        if not half_empty and fits(shape, c):
            yield shape


def clusters_of(shape: Config, c: Correlation, device: Device, channels: int) -> Iterator[Config]:
    """A shape's clusters that share sums, of steps of so many channels, where blocks are few."""
    most = [a.most for a in axes(c)]  # taps
    copies = math.prod(most[:2] if shape.along else most) * -(-c.channels // channels)
    blocks = tiles_of(c, shape)
    for split_k in shape.splits:
        if split_k <= copies and blocks * split_k <= 2 * device.multiprocessors:
            yield replace(shape, split_k=split_k)


def serves(v: Config, c: Correlation) -> bool:
    """Whether a copy has so many taps, and w 64s of such channels where they are neighbours."""
    along = not v.along or (more(c, v) <= MOST_MORE and (c.rotated or c.stride[2] == 1))
    return v.runs and along and not (c.rotated and v.bm % 64) and v.split_k in (1, *v.splits)


def more(c: Correlation, config: Config) -> int:
    """Pixels of a row of a copy of x that other taps than the first read."""
    width = axes(c)[2]
    return (width.most - 1) * width.step if config.along else 0


def box_of(c: Correlation, config: Config) -> Box:
    """Output positions of a block: neighbours of a row of a phase, rows, images."""
    _, height, width = axes(c)
    longest = height.longest, width.longest
    return box(c.batch, height.outputs, width.outputs, config.bn, more(c, config), longest)


def tiles_of(c: Correlation, config: Config) -> int:
    """Blocks' worth of work of a group."""
    along, blocks_m = axes(c), -(-c.out_channels // config.bm)
    phases = math.prod(a.phases for a in along)
    return phases * along[0].outputs * box_of(c, config).blocks * blocks_m


def fits(v: Config, c: Correlation) -> bool:
    """Whether the kernel of split products has such blocks."""
    has = v.bm in SLICED and v.bm <= WIDEST.get(v.bn, 0)
    return has and not v.along and serves(v, replace(c, rotated=c.rotated and v.bm % 64 == 0))
