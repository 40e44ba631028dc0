"""What a thin layer's filter gradient is cut into: chunks of positions, shares, blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.families.wgrad_thin.config import Config, sides

BITS = 32  # of a mask


@dataclass(frozen=True)
class Tiling:
    """One filter gradient: what is computed, by which config, on what grid."""

    problem: Problem
    gradient: Gradient
    precision: str
    dtype: str  # of the operands
    out_dtype: str
    config: Config
    device: Device
    shares: int  # of the sum: of its chunks, blocks have every so many-th

    @property
    def channels(self) -> int:
        """Channels of the wide side."""
        return sides(self.gradient, self.config.wide)[0]

    @property
    def few_channels(self) -> int:
        """Channels of the other side."""
        return sides(self.gradient, self.config.wide)[1]

    @property
    def columns(self) -> int:
        """Taps, each of all channels of the few side."""
        return math.prod(self.gradient.filter) * self.few_channels

    @property
    def map(self) -> tuple[int, int, int]:
        """Sizes of the wide side."""
        return self.gradient.input if self.config.wide == "x" else self.gradient.output

    @property
    def positions(self) -> int:
        """Positions of the wide side, over which the sums run."""
        return self.gradient.batch * math.prod(self.map)

    @property
    def chunks(self) -> int:
        """What a block has at once, of positions."""
        return -(-self.positions // self.config.together)

    @property
    def blocks_m(self) -> int:
        """Blocks of the wide side's channels."""
        return -(-self.channels // self.config.width)

    @property
    def blocks_n(self) -> int:
        """Blocks of columns."""
        return -(-self.columns // self.config.columns)

    @property
    def blocks(self) -> int:
        """Blocks of a share."""
        return self.blocks_m * self.blocks_n

    @property
    def grid(self) -> int:
        """Blocks of the launch."""
        return self.blocks * self.shares

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor holds."""
        v = self.config
        return max(1, min(v.resident, self.device.resident(v.shared_memory)))

    @property
    def workspace(self) -> int:
        """Bytes: a bucket a share, where there are several."""
        return 4 * self.shares * self.gradient.weights if self.shares > 1 else 0

    @property
    def masked(self) -> bool:
        """Whether a position has a bit for each tap of a dimension that it meets; else each column
        is divided by the stride, of positions of x, where it is looked up."""
        divided = self.config.wide == "x" and {*self.gradient.stride} != {1}
        return not divided and sum(self.gradient.filter) <= BITS
