"""What a call of the fused F(2×2, 3×3) is cut into: tiles of images, blocks and work tiles."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.gpu.families.fused2d.config import KC, Config
from winolab.gpu.families.fused2d.layouts import STATES, TILES
from winolab.gpu.families.fused2d.source import TILE
from winolab.gpu.planner.correlation import Correlation

FILTER_BLOCK, FILTER_THREADS = 32, 256  # output and input channels of a block; its threads


@dataclass(frozen=True)
class Tiling:
    """One call: what is computed, by which config, on what grid."""

    direction: str
    problem: Problem
    correlation: Correlation
    points: str
    config: Config
    device: Device

    @property
    def chunks(self) -> int:
        """Stages of KC channels."""
        return -(-self.correlation.channels // KC)

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // self.config.bm)

    @property
    def image(self) -> tuple[int, int]:
        """Rows and columns of an image's tiles."""
        _, height, width = self.correlation.output
        return -(-height // TILE.n), -(-width // TILE.n)

    @property
    def boxes(self) -> tuple[int, int, int]:
        """Boxes of tiles along images, rows and columns; 0 where tiles follow one another."""
        v, (rows, columns) = self.config, self.image
        if not v.images:
            return 0, 0, 0
        return -(-self.correlation.batch // v.images), -(-rows // v.rows), -(-columns // v.columns)

    @property
    def tile_blocks(self) -> int:
        """Blocks of tiles."""
        images, rows, columns = self.boxes
        if images:
            return images * rows * columns
        rows, columns = self.image
        return -(-self.correlation.batch * rows * columns // TILES)

    @property
    def work_tiles(self) -> int:
        """Work tiles of a group."""
        return self.blocks_m * self.tile_blocks

    @property
    def grid(self) -> int:
        """Blocks: one a multiprocessor, which its shared memory fills."""
        return min(self.work_tiles, self.device.multiprocessors)

    @property
    def transformed(self) -> int:
        """Bytes of a group's transformed filter."""
        return 4 * self.blocks_m * self.chunks * STATES * KC * self.config.bm

    @property
    def workspace(self) -> int:
        """Bytes of all groups' transformed filters; none where blocks transform them."""
        return 0 if self.config.fused else self.transformed * self.correlation.groups

    @property
    def filter_grid(self) -> tuple[int, int, int]:
        """Blocks that transform a group's filter."""
        outputs, channels = self.blocks_m * self.config.bm, self.chunks * KC
        return outputs // FILTER_BLOCK, -(-channels // FILTER_BLOCK), 1
