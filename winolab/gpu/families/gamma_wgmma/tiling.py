"""What a call of Γ by wgmma is cut into: boxes, multicast pairs, clusters, packed batches."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.gpu.families.clusters import clusters
from winolab.gpu.families.gamma import tiling
from winolab.gpu.families.gamma_wgmma.config import Config
from winolab.gpu.families.gamma_wgmma.input import padded_size
from winolab.gpu.families.gamma_wgmma.packed_batch import PackedBatch, packed_batch


@dataclass(frozen=True)
class Tiling(tiling.Tiling):
    """What is computed, by blocks of which config, on what grid."""

    config: Config

    @property
    def padded(self) -> int:
        """Bytes of a copy of x whose channels are padded; 0 where x serves."""
        return padded_size(self.correlation, self.size) if self.config.padded else 0

    @property
    def blocks_row(self) -> int:
        """Blocks of output rows."""
        rows = self.packed_batch.rows if self.packed_batch else self.correlation.output[1]
        return -(-rows // self.config.rows)

    @property
    def tiles_width(self) -> int:
        """Tiles of a row of outputs, with what fills up its last box."""
        run = max(1, self.config.run)
        return -(-self.correlation.output[2] // (self.tile.n * run)) * run

    @property
    def columns(self) -> int:
        """Tile columns: of all depths and images, or of those abreast, one for every n outputs of
        the width.
        """
        c = self.correlation
        images = self.packed_batch.abreast if self.packed_batch else c.batch
        return images * c.output[0] * self.tiles_width

    @property
    def packed_batch(self) -> PackedBatch | None:
        """How images lie under one another, where blocks' rows run on from one to the next."""
        c, v = self.correlation, self.config
        if not v.packed:
            return None
        columns = v.columns(self.tile) * v.multicast
        return packed_batch(c, self.filter_taps[1], self.tiles_width, columns, v.images, v.packed)

    @property
    def work_tiles(self) -> int:
        """Work of a block, or of a cluster that shares sums: the grid walks over them."""
        multicast = self.config.multicast
        columns = self.config.columns(self.tile) * multicast
        return self.blocks_m * self.blocks_row * -(-self.columns // columns) * multicast

    @property
    def slots(self) -> int:
        """Work tiles that run at once, on a cluster each or, by multicast pairs, on a block."""
        v = self.config
        return clusters(self.device, v.split_k * v.multicast) * v.multicast

    @property
    def grid(self) -> int:
        """Blocks."""
        return self.config.split_k * min(max(self.work_tiles, self.config.multicast), self.slots)

    @property
    def outputs(self) -> int:
        """Output channels of the transformed filter."""
        return (self.blocks_m - 1) * self.block + (self.config.narrow or self.block)

    @property
    def rotation(self) -> int:
        """Work tiles after which blocks move on to other output channels: those that run at once,
        where a block would meet the same channels again and again. Else more than there are.
        """
        at_once = self.grid // self.config.multicast
        return at_once if at_once % max(1, self.blocks_m) == 0 else (1 << 31) - 1
