"""What direct products whose copies walk positions are cut into."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.gpu.families import im2col_maps
from winolab.gpu.families.clusters import MOST_SPLITS
from winolab.gpu.families.im2col.config import Config
from winolab.gpu.params import MOST, MOST_BLOCKS
from winolab.gpu.planner.correlation import Correlation


@dataclass(frozen=True)
class Tiling:
    """One call: what is computed, by which config, on what grid."""

    direction: str
    problem: Problem
    correlation: Correlation
    precision: str
    out_dtype: str  # "float32", or the operands'
    config: Config
    device: Device

    @property
    def rank(self) -> int:
        """Dimensions of x's map: without a depth four, which reach farther."""
        return im2col_maps.rank(self.correlation)

    @property
    def positions(self) -> int:
        """Positions of y."""
        return self.correlation.batch * math.prod(self.correlation.output)

    @property
    def depth(self) -> int:
        """Channels of a step."""
        return self.config.depth

    @property
    def chunks(self) -> int:
        """Steps of a tap."""
        return -(-self.correlation.channels // self.depth)

    @property
    def steps(self) -> int:
        """Steps of a sum."""
        return math.prod(self.correlation.filter) * self.chunks

    @property
    def blocks_m(self) -> int:
        """Blocks of a group's output channels."""
        return -(-self.correlation.out_channels // self.config.bm)

    @property
    def work_tiles(self) -> int:
        """Blocks of sums, each of a cluster."""
        return -(-self.positions // self.config.bn) * self.blocks_m * self.correlation.groups

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks of the launch: positions, channels and parts of the steps; groups."""
        groups = self.correlation.groups
        return self.work_tiles // groups * self.config.split_k, groups, 1

    def unreached(self) -> str | None:
        """What tensor maps and counts do not reach of this call; None where they reach all."""
        c = self.correlation
        if self.positions > MOST - self.config.bn or self.grid[0] > MOST or c.groups > MOST_BLOCKS:
            return f"{MOST} positions and blocks, and {MOST_BLOCKS} groups at most"
        if self.steps > MOST // MOST_SPLITS:
            return f"sums whose steps number {MOST // MOST_SPLITS} at most"
        if self.config.tf32 and c.groups > 1:
            return f"one group of FP32, not {c.groups}"
        return im2col_maps.unserved(c)
