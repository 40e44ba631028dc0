"""What a call of the implicit GEMM is, and how it is cut into blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.gpu.families.axes import Phased
from winolab.gpu.families.implicit_gemm.config import FILLED, Config
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.params import VECTOR, aligned
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import ITEMSIZE


@dataclass(frozen=True)
class Tiling(Phased):
    """One call: what is computed, in what blocks."""

    direction: str
    problem: Problem
    correlation: Correlation  # of gradients forward's
    precision: str
    dtype: str  # of the operands
    out_dtype: str
    config: Config
    merged: int  # groups of a block
    device: Device
    segments: int = 1  # of the sum: of a gradient's positions, or of taps × channels

    @property
    def gradient(self) -> bool:
        """Whether the result is dw."""
        return self.direction == "backward_filter"

    @property
    def main_kernel(self) -> str:
        """The entry that multiplies."""
        return "winolab_implicit_gemm" + ("_wgmma" if self.config.producers else "")

    @property
    def workspace(self) -> int:
        """Bytes: filled copies, and the sums of segments, where there are several."""
        sums = 4 * self.result.weights * self.segments if self.segments > 1 else 0
        return sum(self.filled) + sums

    @property
    def segmented(self) -> bool:
        """Whether the sum of a correlation is cut."""
        return self.segments > 1 and not self.gradient

    @property
    def result(self) -> Gradient:
        """What segments are added up to: dw; or y or dx as one, of images for output channels and
        pixels for taps."""
        g = Gradient.of(self.problem, unit=False)
        if self.gradient:
            return g
        c = self.correlation
        channels = c.groups * c.out_channels
        return replace(g, groups=1, channels=channels, out_channels=c.batch, filter=c.output)

    @property
    def patch_channels(self) -> int:
        """Channels of a tap: of all groups of a block; or filled up."""
        c = self.correlation
        if self.config.fill and not c.rotated:
            return self.filled_channels
        return self.merged * c.channels

    @property
    def filled_channels(self) -> int:
        """Channels of a pixel of copies whose channels are filled up: x's, or dx's."""
        c = self.correlation
        return -(-(c.out_channels if c.rotated else c.channels) // FILLED) * FILLED

    @property
    def filled(self) -> tuple[int, int]:
        """Bytes of the copies of x and of the filter, whose channels are filled up."""
        c, each = self.correlation, self.filled_channels * ITEMSIZE[self.dtype]
        if not self.config.fill:
            return 0, 0
        x = 0 if c.rotated else c.batch * math.prod(c.input) * each
        far = c.channels if c.rotated else c.out_channels
        w = 0 if self.gradient else far * math.prod(c.filter) * each
        return aligned(x), aligned(w)

    @property
    def blocks_rows(self) -> int:
        """Blocks of rows: of a phase's positions, or of a gradient's output channels."""
        results = self.merged * self.correlation.out_channels
        return -(-(results if self.gradient else self.positions) // self.config.block_rows)

    @property
    def blocks_columns(self) -> int:
        """Blocks of columns: of output channels, or of a gradient's taps × channels."""
        c = self.correlation
        of_taps = self.patch_channels * math.prod(c.filter)
        columns = of_taps if self.gradient else self.merged * c.out_channels
        return -(-columns // self.config.block_columns)

    @property
    def tiles_of_phase(self) -> int:
        """Blocks of a phase, or of a gradient's segment."""
        return self.blocks_rows * self.blocks_columns * self.correlation.groups // self.merged

    @property
    def grid(self) -> int:
        """Blocks of the launch."""
        return self.tiles_of_phase * self.phases * self.segments

    @property
    def steps(self) -> int:
        """Steps of a segment, where there may be several."""
        if not (self.gradient or self.segmented):
            return 0
        return -(-self.summed // (self.config.depth * self.segments))

    @property
    def summed(self) -> int:
        """Terms of a result: positions of a gradient, or taps × channels where all taps meet."""
        c = self.correlation
        return self.positions if self.gradient else self.patch_channels * math.prod(c.filter)

    @property
    def vectors(self) -> tuple[int, int]:
        """Elements that a copy of patches, and of what they meet, brings."""
        c, most = self.correlation, VECTOR // ITEMSIZE[self.dtype]
        whole = self.patch_channels
        other = {
            "forward": whole if self.config.fill else c.channels,
            "backward_data": self.filled_channels if self.config.fill else c.out_channels,
            "backward_filter": self.merged * c.out_channels,
        }[self.direction]
        return math.gcd(whole, most), math.gcd(other, most)
