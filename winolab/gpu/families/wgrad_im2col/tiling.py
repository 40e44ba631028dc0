"""What a direct filter gradient whose copies walk positions is cut into."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.gpu.families import direct_gradients
from winolab.gpu.families.wgrad_im2col.config import KC, Config
from winolab.gpu.params import MOST, MOST_BLOCKS
from winolab.gpu.planner.correlation import without_depth

MOST_STEP = 8  # between neighbouring positions of a tensor map
# The window's corners, and the farthest tap, of maps of four dimensions and of five: CUDA driver
# API, cuTensorMapEncodeIm2col; PTX ISA section 5.5.4.
DIVIDED = 1 << 30  # below it kernel.cuh divides exactly
CORNERS, FARTHEST = {4: 128, 5: 16}, {4: 255, 5: 31}


@dataclass(frozen=True)
class Tiling(direct_gradients.Tiling):
    """One filter gradient: what is computed, by which config, on what grid."""

    config: Config

    @property
    def rank(self) -> int:
        """Dimensions of the maps: without a depth four, which reach farther."""
        return 4 if without_depth(self.gradient) else 5

    @property
    def positions(self) -> int:
        """Positions of dy."""
        return self.gradient.batch * math.prod(self.gradient.output)

    @property
    def steps(self) -> int:
        """Steps of all positions."""
        return -(-self.positions // KC)

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

    @property
    def corners(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Where the window of x begins and ends, behind x's last place, by width, height, depth."""
        g = self.gradient
        lower = [-p for p in g.padding]
        along = zip(g.output, g.stride, g.padding, g.input, strict=True)
        upper = [(outputs - 1) * stride - pad - (size - 1) for outputs, stride, pad, size in along]
        return (lower[2], lower[1], lower[0]), (upper[2], upper[1], upper[0])

    def unreached(self) -> str | None:
        """What tensor maps do not reach of this gradient; None where they reach all."""
        g, most, farthest = self.gradient, CORNERS[self.rank], FARTHEST[self.rank]
        if max(g.stride) > MOST_STEP:
            return f"strides of up to {MOST_STEP}, not {max(g.stride)}"
        if not all(-most <= c < most for corner in self.corners for c in corner):
            return f"a padding below {most}, and filters that reach as far beyond x's end"
        if any((n - 1) * d > farthest for n, d in zip(g.filter, g.dilation, strict=True)):
            return f"taps that lie at most {farthest} apart"
        if self.positions > MOST - KC or max(self.grid[1:]) > MOST_BLOCKS:
            return f"{MOST} positions and {MOST_BLOCKS} taps and groups at most"
        blocks = self.blocks_in * self.blocks_out
        if max(blocks * self.blocks_in, self.taps * max(g.filter)) >= DIVIDED:
            return f"{DIVIDED} blocks times those of a side at most"
        return None
