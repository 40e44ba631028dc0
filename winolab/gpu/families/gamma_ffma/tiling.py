"""What a call of Γα(n,r) on FFMA units is cut into: taps, stages, blocks and work tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.device import Device
from winolab.gpu.families.gamma.named import Named
from winolab.gpu.families.gamma_ffma.config import Config

FILTER_BLOCK, FILTER_THREADS = 32, 256  # output and input channels of a block; its threads


@dataclass(frozen=True)
class Tiling(Named):
    """One call: what is computed, by blocks of which config, on what grid."""

    config: Config
    device: Device
    grid: int  # blocks
    work_tiles: int  # blocks' worth of work: the grid walks over them
    whole: int  # work tiles that one block computes alone; clusters share the others
    tiles_width: int
    blocks_row: int
    workspace: int  # bytes: the transformed filter

    @property
    def outer(self) -> tuple[int, int, int]:
        """Taps that are summed directly, per dimension."""
        depth, height, width = self.correlation.filter
        return depth, height, width // self.tile.r

    @property
    def chunks(self) -> int:
        """Stages of KC channels."""
        return -(-self.correlation.channels // self.config.kc)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.config.threads

    @property
    def blocks_m(self) -> int:
        """Blocks of BM output channels."""
        return -(-self.correlation.out_channels // self.config.bm)

    @property
    def columns(self) -> int:
        """Tile columns: of all images and depths, one for every n outputs of the width."""
        return self.correlation.batch * self.correlation.output[0] * self.tiles_width

    @property
    def filter_grid(self) -> tuple[int, int, int]:
        """Blocks that transform a group's filter."""
        v = self.config
        return (
            -(-self.blocks_m * v.bm // FILTER_BLOCK),
            -(-self.chunks * v.kc // FILTER_BLOCK),
            math.prod(self.outer),
        )
