"""What a call of the fused kernel is cut into: tiles of images, blocks, parts of sums."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.algorithm import Problem, Tile
from winolab.device import Device
from winolab.gpu.families.fused2d.config import KC, Config
from winolab.gpu.families.fused2d.layouts import STATES, TILES
from winolab.gpu.families.fused2d.source import GRADIENT_TILE, TILE
from winolab.gpu.planner.correlation import Correlation

FILTER_BLOCK, FILTER_THREADS = 32, 256  # output and input channels of a block; its threads


@dataclass(frozen=True)
class Tiling:
    """One call: what is computed, by which config, on what grid."""

    direction: str
    problem: Problem
    correlation: Correlation  # of gradients forward's
    points: str
    config: Config
    device: Device
    dtype: str = "float32"  # of the operands
    out_dtype: str = "float32"

    @property
    def gradient(self) -> bool:
        """Whether the result is dw."""
        return self.direction == "backward_filter"

    @property
    def tile(self) -> Tile:
        """The tile of both dimensions."""
        return GRADIENT_TILE if self.gradient else TILE

    @property
    def image(self) -> tuple[int, int]:
        """Rows and columns of an image's tiles: of y; of a gradient's dy."""
        _, height, width = self.correlation.output
        size = self.tile.r if self.gradient else self.tile.n
        return -(-height // size), -(-width // size)

    @property
    def terms(self) -> int:
        """What is summed: channels, or a gradient's tiles of dy."""
        c = self.correlation
        return c.batch * math.prod(self.image) if self.gradient else c.channels

    @property
    def chunks(self) -> int:
        """Stages of KC terms."""
        return -(-self.terms // KC)

    @property
    def split_k(self) -> int:
        """Parts of the sum."""
        return max(1, self.config.split_k)

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // self.config.bm)

    @property
    def boxes(self) -> tuple[int, int, int]:
        """Boxes of tiles along images, rows and columns; 0 where tiles follow one another."""
        v, (rows, columns) = self.config, self.image
        if not v.images:
            return 0, 0, 0
        return -(-self.correlation.batch // v.images), -(-rows // v.rows), -(-columns // v.columns)

    @property
    def tile_blocks(self) -> int:
        """Blocks of tiles; of a gradient's input channels."""
        if self.gradient:
            return -(-self.correlation.channels // TILES)
        images, rows, columns = self.boxes
        if images:
            return images * rows * columns
        rows, columns = self.image
        return -(-self.correlation.batch * rows * columns // TILES)

    @property
    def work_tiles(self) -> int:
        """Work tiles of a group."""
        return self.blocks_m * self.tile_blocks * self.split_k

    @property
    def grid(self) -> int:
        """Blocks: one a multiprocessor, which its shared memory fills."""
        return min(self.work_tiles, self.device.multiprocessors)

    @property
    def transformed(self) -> int:
        """Bytes of a group's transformed filter; none where blocks transform it."""
        size = 4 * self.blocks_m * self.chunks * STATES * KC * self.config.bm
        return 0 if self.config.fused else size

    @property
    def filters(self) -> int:
        """Elements of the filter, all groups; of a gradient dy."""
        c = self.correlation
        if self.gradient:
            return c.batch * math.prod(c.output) * c.groups * c.out_channels
        return c.groups * c.out_channels * math.prod(c.filter) * c.channels

    @property
    def outputs(self) -> int:
        """Elements of the result, all groups."""
        c = self.correlation
        if self.gradient:
            return c.groups * c.out_channels * math.prod(c.filter) * c.channels
        return c.batch * math.prod(c.output) * c.groups * c.out_channels

    @property
    def prepared_size(self) -> int:
        """Bytes of the transformed filter, all groups."""
        return self.transformed * self.correlation.groups

    @property
    def workspace(self) -> int:
        """Bytes of the transformed filter, and of the sums of parts where there are several."""
        buckets = 4 * self.outputs * self.split_k if self.split_k > 1 else 0
        return self.prepared_size + buckets

    @property
    def filter_grid(self) -> tuple[int, int, int]:
        """Blocks that transform a group's filter."""
        outputs, channels = self.blocks_m * self.config.bm, self.chunks * KC
        return outputs // FILTER_BLOCK, -(-channels // FILTER_BLOCK), 1
