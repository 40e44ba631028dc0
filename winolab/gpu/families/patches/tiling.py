"""What products of patches are cut into: work tiles of positions, blocks of channels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.gpu.families.axes import flattened, row
from winolab.gpu.families.clusters import even
from winolab.gpu.families.patches.config import DEEP, LANE, Config, pairs, pixel, vector
from winolab.gpu.planner.correlation import Correlation

PLACE = 16  # bytes of a table's entry, and of a lane's fragment of the filter
LEVELS, LINES, COLUMNS = 32, 1 << 12, 1 << 14  # of a work tile's x that a place counts
ELEMENT = 2  # bytes


@dataclass(frozen=True)
class Patches:
    """How a correlation is cut by a config."""

    correlation: Correlation
    config: Config

    @property
    def tiles(self) -> tuple[int, int]:
        """Work tiles along columns and rows of y."""
        _, height, width = self.correlation.output
        return -(-width // self.config.columns), -(-height // self.config.rows)

    @property
    def work_tiles(self) -> int:
        """Work tiles of all levels and images."""
        return self.correlation.batch * self.correlation.output[0] * math.prod(self.tiles)

    @property
    def lines(self) -> int:
        """Rows of a level of x that a work tile's taps meet."""
        return self._met(1, self.config.rows)

    @property
    def span(self) -> int:
        """Pixels of such a row."""
        return self._met(2, self.config.columns)

    def _met(self, axis: int, outputs: int) -> int:
        c = self.correlation
        return (outputs - 1) * c.stride[axis] + (c.filter[axis] - 1) * c.dilation[axis] + 1

    @property
    def reach(self) -> int:
        """Pixels from a row's first one to the furthest that work tiles ask for."""
        c = self.correlation
        met = self.tiles[0] * self.config.columns * c.stride[2] + self.span - c.padding[2]
        return max(c.input[2], abs(c.padding[2]), met)

    @property
    def rows(self) -> int:
        """Rows of x that a work tile copies."""
        return self.correlation.filter[0] * self.lines

    @property
    def units(self) -> int:
        """Vectors of a row that are copied pixel by pixel: as many as the table of them has."""
        channels = self.correlation.channels
        return self.span * (channels // vector(channels))

    @property
    def loads(self) -> int:
        """Loads of a row where arrays are dense: of vectors of several pixels, of a pixel's, or of
        numbers."""
        c = self.correlation
        one = vector(c.channels)
        if one == LANE:
            return self.units
        for width in (LANE, LANE // 2):
            count = -(-(width - 1 + self.span * c.channels) // width)
            if c.input[2] * c.channels % width == 0 and count <= self.units:
                return count
        return self.span * c.channels

    @property
    def pitch(self) -> int:
        """Elements of a row in shared memory: a vector may begin before it, a pair end behind."""
        numbers = self.span * pixel(self.correlation.channels)
        return -(-(LANE + numbers + 2) // LANE) * LANE

    @property
    def odd(self) -> bool:
        """Whether pairs of some positions begin with an odd element."""
        return self.correlation.channels * self.correlation.stride[2] % 2 != 0

    @property
    def lead(self) -> int:
        """Numbers of none that pairs of a filter row begin with, so that they do not begin with an
        odd element of x: one, where they end with one otherwise."""
        c = self.correlation
        taps = c.filter[2] * c.channels
        return int(not self.odd and taps % 2 != 0 and c.padding[2] * c.channels % 2 != 0)

    @property
    def steps(self) -> int:
        """Sixteens of the sum."""
        return -(-2 * pairs(self.correlation) // DEEP)

    @property
    def masked(self) -> bool:
        """Whether some pairs are none, or are single numbers."""
        c = self.correlation
        return pairs(c) % (DEEP // 2) != 0 or c.filter[2] * c.channels % 2 != 0

    @property
    def shared_memory(self) -> int:
        """Bytes of a block: the filter, tables of pairs and of vectors, x of two work tiles."""
        fragments = self.steps * self.config.width // 16 * 32
        tables = self.steps * (4 + 8) + self.rows * self.units
        return PLACE * (fragments + tables) + 2 * ELEMENT * (self.rows * self.pitch + LANE)

    @property
    def counted(self) -> bool:
        """Whether a vector's place has bits for its level, row and column."""
        most = LEVELS, LINES, COLUMNS
        there = self.correlation.filter[0], self.lines, self.span
        return all(n <= limit for n, limit in zip(there, most, strict=True))


@dataclass(frozen=True)
class Tiling:
    """One call: what is computed, by which config, on what grid."""

    direction: str
    problem: Problem
    correlation: Correlation
    precision: str
    dtype: str  # of the operands
    out_dtype: str
    config: Config
    device: Device

    @property
    def row(self) -> Correlation:
        """The same with all positions as one row, where single taps meet all of them in order."""
        c = self.correlation
        return row(c) if flattened(c) else c

    @property
    def patches(self) -> Patches:
        """How it is cut: of one row where positions may be."""
        return Patches(self.row, self.config)

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // self.config.width)

    @property
    def shared_memory(self) -> int:
        """Bytes of a block, of any arrays."""
        return Patches(self.correlation, self.config).shared_memory

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor holds."""
        return max(1, min(self.config.blocks, self.device.resident(self.shared_memory)))

    @property
    def workers(self) -> int:
        """Blocks that share the work tiles of a block of output channels."""
        most = max(1, self.resident * self.device.multiprocessors // self.blocks_m)
        return even(self.patches.work_tiles, most)

    @property
    def grid(self) -> int:
        """Blocks of the launch, which stay until all work tiles are done."""
        return self.workers * self.blocks_m
