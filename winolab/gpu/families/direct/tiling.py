"""What a direct call is cut into: boxes of positions, steps of taps, work tiles, its workspace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from winolab.algorithm import Problem, Tile
from winolab.device import Device
from winolab.gpu.families import scale
from winolab.gpu.families.axes import Axis, Phased, axes, row
from winolab.gpu.families.boxes import Box
from winolab.gpu.families.direct.config import (
    FFMA_CHANNELS,
    FFMA_POSITIONS,
    KC,
    PAIR,
    ROWS,
    SPLIT_CHANNELS,
    Config,
    box_of,
    more,
    tiles_of,
)
from winolab.gpu.planner.correlation import Correlation
from winolab.ref.arithmetic.split import Scale

SIZE = 2  # bytes of an element of 16 bits
THREADS = 384  # of a block
DEPTH = 16  # channels of a product
TILES = (Tile(1, 1),)  # of split products


@dataclass(frozen=True)
class Tiling:
    """A call on wgmma: what is computed, by which config, on what grid."""

    direction: str
    problem: Problem
    correlation: Correlation
    precision: str
    out_dtype: str  # "float32", or the operands'
    config: Config
    device: Device
    flat: bool = False  # whether all positions are one row

    step_channels: ClassVar[int] = KC
    itemsize: ClassVar[int] = SIZE  # bytes of an element of x

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return THREADS

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
        return row(self.correlation) if self.flat else self.correlation

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


@dataclass(frozen=True)
class SplitTiling(Tiling):
    """A call of split data, whose workspace holds a header, the filter's rows and its parts."""

    given: Scale | None = None  # by the caller

    step_channels: ClassVar[int] = SPLIT_CHANNELS
    itemsize: ClassVar[int] = 4

    @property
    def threads(self) -> int:
        """Threads of a block: a consumer warpgroup for 64 positions, and a producer's."""
        return 2 * self.config.bn + 128

    @property
    def header(self) -> int:
        """Bytes that the workspace begins with."""
        return scale.header_size(self.correlation, TILES)

    @property
    def rows_size(self) -> int:
        """Bytes of the filter's rows: their scales and thresholds."""
        return scale.size(self.correlation)

    @property
    def part_rows(self) -> int:
        """Rows of a group's parts: of output channels, and those that they are exchanged with."""
        return scale.padded(self.correlation, ROWS)

    @property
    def filter_size(self) -> int:
        """Bytes of a group's parts."""
        c = self.correlation
        return self.part_rows * math.prod(c.filter) * self.chunks * 2 * PAIR * SPLIT_CHANNELS

    @property
    def prepared_size(self) -> int:
        """Bytes of the filter's rows and parts."""
        return self.rows_size + self.correlation.groups * self.filter_size

    @property
    def workspace(self) -> int:
        """Bytes: header, rows and parts."""
        return self.header + self.prepared_size

    @property
    def window(self) -> tuple[int, int]:
        """Outputs of a row of a phase, and rows: of an image, where all positions are one row."""
        if self.flat:
            return math.prod(self.correlation.output), 1
        return self.axes[2].outputs, self.axes[1].outputs


@dataclass(frozen=True)
class FfmaTiling(Phased):
    """A call on FFMA units: what is computed, on what grid."""

    direction: str
    problem: Problem
    correlation: Correlation
    device: Device

    @property
    def blocks_n(self) -> int:
        """Blocks of a phase's outputs."""
        return -(-self.positions // FFMA_POSITIONS)

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // FFMA_CHANNELS)

    @property
    def grid(self) -> int:
        """Blocks: of all phases."""
        return self.blocks_n * self.blocks_m * self.phases
