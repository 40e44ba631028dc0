"""Block shapes of products of patches, and which layers they serve."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from winolab.device import REGISTERS
from winolab.gpu.planner.correlation import Correlation
from winolab.options import KernelConfig

RUN = 8  # positions in a row that lie in one tile of mma.sync, which has two such runs
DEEP = 16  # numbers of the sum a step
MOST_CHANNELS = 64  # that are summed: others fill wgmma's steps
MOST_SUMMED = 512  # taps times channels, of which shared memory has the filter
MOST_SHARED = 100 << 10  # bytes of a block: two blocks of 9.0, one of 8.x
LANE = 8  # output channels that a lane stores at once
MOST_WIDE = 128  # tiles times output channels of a warp, half of which its sums' registers are
KEPT = 48  # registers of a thread beside its sums
# Rows and columns of positions of a block, and tiles of 16 that a warp has at once.
SHAPES = tuple(
    (count // columns, columns, tiles)
    for count, tiles in ((64, 1), (128, 1), (128, 2), (256, 2))
    for columns in (8, 16, 32, 64, 128, 256)
    if columns <= count
)
WIDTHS = (32, 64, 96, 128)  # output channels of a block


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernel."""

    rows: int  # of positions of a block
    columns: int
    width: int  # output channels of a block
    tiles: int = 1  # of 16 positions that a warp has at once

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} positions {self.width} channels tiles={self.tiles}"

    @property
    def runs(self) -> bool:
        """Whether a kernel has this shape."""
        known = (self.rows, self.columns, self.tiles) in SHAPES and self.width in WIDTHS
        return known and self.tiles * self.width <= MOST_WIDE

    @property
    def threads(self) -> int:
        """Threads of a block: a warp for its tiles of positions."""
        return 2 * self.rows * self.columns // self.tiles

    @property
    def registers(self) -> int:
        """About how many a thread takes: its sums, and what it multiplies."""
        return self.tiles * self.width // 2 + KEPT

    @property
    def blocks(self) -> int:
        """Blocks of a multiprocessor that registers allow."""
        return max(1, REGISTERS // (self.threads * self.registers))


def vector(channels: int) -> int:
    """Channels that are copied at once: a power of two that divides them, or all."""
    return channels if channels % 2 else min(LANE, channels & -channels)


def pixel(channels: int) -> int:
    """Elements from a pixel to the next in shared memory: reads of neighbours that lie 16 words and
    more apart meet other banks."""
    return channels + (LANE if channels % 16 == 0 else 0)


def pairs(c: Correlation) -> int:
    """Pairs of neighbouring numbers of the sum, which do not go on in the next filter row."""
    *lines, taps = c.filter
    return math.prod(lines) * -(-taps * c.channels // 2)


def serves(c: Correlation) -> bool:
    """Whether the kernel computes it: pairs of an odd number of channels lie in neighbouring
    pixels."""
    near = c.channels % 2 == 0 or (c.channels < LANE and (c.filter[2] == 1 or c.dilation[2] == 1))
    unit = not c.rotated or {*c.stride} == {1}
    few = 0 < c.channels <= MOST_CHANNELS and 2 * pairs(c) <= MOST_SUMMED
    return near and unit and few and c.groups == 1 and c.out_channels % LANE == 0


def configs(c: Correlation) -> Iterator[Config]:
    """Block shapes that no other exceeds: no channels that are empty blocks of 32."""
    filled = -(-c.out_channels // 32) * 32
    for rows, columns, tiles in SHAPES:
        for width in WIDTHS:
            v = Config(rows, columns, width, tiles)
            if width <= filled and v.runs:
                yield v
