"""What a direct filter gradient whose copies walk positions is cut into."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.gpu.families import direct_products, im2col_maps
from winolab.gpu.families.clusters import KC
from winolab.gpu.families.wgrad_im2col.config import Config
from winolab.gpu.params import MOST, MOST_BLOCKS

DIVIDED = 1 << 30  # below it kernel.cuh divides exactly


@dataclass(frozen=True)
class Tiling(direct_products.Tiling):
    """One filter gradient: what is computed, by which config, on what grid."""

    config: Config

    @property
    def rank(self) -> int:
        """Dimensions of the maps: without a depth four, which reach farther."""
        return im2col_maps.rank(self.gradient)

    @property
    def positions(self) -> int:
        """Positions of dy."""
        return self.gradient.batch * math.prod(self.gradient.output)

    @property
    def depth(self) -> int:
        """Positions of a step."""
        return self.config.depth

    @property
    def steps(self) -> int:
        """Steps of all positions."""
        return -(-self.positions // self.depth)

    @property
    def taps(self) -> int:
        """Taps of the filter."""
        return math.prod(self.gradient.filter)

    @property
    def blocks_in(self) -> int:
        """Blocks of a group's input channels."""
        return -(-self.gradient.channels // self.config.bi)

    @property
    def blocks_out(self) -> int:
        """Blocks of a group's output channels."""
        return -(-self.gradient.out_channels // self.config.bo)

    @property
    def work_tiles(self) -> int:
        """Blocks of sums, each of a cluster."""
        return self.blocks_in * self.blocks_out * self.taps * self.gradient.groups

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks of the launch: channels and parts of the positions, taps, groups."""
        g = self.gradient
        return self.config.split_k * self.blocks_in * self.blocks_out, self.taps, g.groups

    def unreached(self) -> str | None:
        """What tensor maps do not reach of this gradient; None where they reach all."""
        g = self.gradient
        if missed := im2col_maps.unreached(g):
            return missed
        if self.positions > MOST - KC or max(self.grid[1:]) > MOST_BLOCKS:
            return f"{MOST} positions and {MOST_BLOCKS} taps and groups at most"
        blocks = self.blocks_in * self.blocks_out
        if max(blocks * self.blocks_in, self.taps * max(g.filter)) >= DIVIDED:
            return f"{DIVIDED} blocks times those of a side at most"
        return None
