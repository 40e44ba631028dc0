"""What a call of Γ on Tensor Cores is cut into: taps, stages, blocks and work tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.device import Device
from winolab.gpu.families.gamma.config import KC, PARTS, GammaConfig
from winolab.gpu.families.gamma.named import Named
from winolab.gpu.families.gamma.tiles import block_outputs
from winolab.gpu.planner.request import DTYPES, ITEMSIZE
from winolab.ref.arithmetic.split import Scale


@dataclass(frozen=True)
class Tiling(Named):
    """What is computed, by blocks of which config, on what grid."""

    precision: str
    out_dtype: str
    config: GammaConfig
    device: Device
    given: Scale | None = None  # of split products, by the caller

    whole = 0  # work tiles that one block computes alone where clusters share the others
    padded = 0  # bytes of a copy of x whose channels are padded

    @property
    def parts(self) -> int:
        """16-bit parts of a value."""
        return PARTS[self.precision]

    @property
    def size(self) -> int:
        """Bytes of an operand's element."""
        return ITEMSIZE[DTYPES[self.precision]]

    @property
    def outer(self) -> tuple[int, int, int]:
        """Taps that are summed directly, per dimension; rows fill up stages that share them."""
        depth, height, width = self.correlation.filter
        share = self.config.share
        return depth, -(-height // share) * share, -(-width // self.tile.r)

    @property
    def filter_taps(self) -> tuple[int, int, int]:
        """Taps of the transformed filter, per dimension: rows of zeros are left out of ``rest``."""
        depth, height, width = self.outer
        return depth, self.correlation.filter[1] if self.config.rest else height, width

    @property
    def chunks(self) -> int:
        """Stages of 16 channels."""
        return -(-self.correlation.channels // KC)

    @property
    def steps(self) -> int:
        """Stages of a summation."""
        return math.prod(self.outer) // self.config.share * self.chunks

    @property
    def block(self) -> int:
        """Output channels of a block."""
        return block_outputs(self.tile.alpha)

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // self.block)

    @property
    def blocks_row(self) -> int:
        """Blocks of output rows."""
        return -(-self.correlation.output[1] // self.config.rows)

    @property
    def tiles_width(self) -> int:
        """Tiles of a row of outputs."""
        return -(-self.correlation.output[2] // self.tile.n)

    @property
    def columns(self) -> int:
        """Tile columns: of all depths and images, one for every n outputs of the width."""
        return self.correlation.batch * self.correlation.output[0] * self.tiles_width

    @property
    def work_tiles(self) -> int:
        """Work of a block: the grid walks over them."""
        return self.blocks_m * self.blocks_row * -(-self.columns // self.config.columns(self.tile))

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.config.threads

    @property
    def grid(self) -> int:
        """Blocks."""
        return max(1, min(self.work_tiles, self.device.multiprocessors))

    @property
    def outputs(self) -> int:
        """Output channels of the transformed filter."""
        return self.blocks_m * self.block

    @property
    def transformed(self) -> int:
        """Bytes of the transformed filter of a group."""
        states = math.prod(self.filter_taps) * self.chunks * self.tile.alpha
        return states * self.parts * self.outputs * KC * 2
