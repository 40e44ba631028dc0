"""What a depthwise call is cut into: chunks of channels, strips of columns, walks, blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.gpu.families.depthwise.config import THREADS, Config, shared_memory, slides
from winolab.gpu.families.depthwise.shape import Depthwise
from winolab.gpu.params import MOST
from winolab.gpu.planner.request import ITEMSIZE

TOGETHER = 8  # taps of a block of filter_any.cuh


@dataclass(frozen=True)
class Tiling:
    """One call: what is computed, by which config, on what grid."""

    direction: str
    problem: Problem
    shape: Depthwise
    precision: str
    dtype: str  # of the operands
    out_dtype: str
    config: Config
    device: Device
    rows: int  # of outputs, of a thread's walk
    shares: int = 1  # of a filter gradient's sum
    workers: int = 0  # blocks of a chunk of channels that walk from work tile to work tile; 0: all

    @property
    def gradient(self) -> bool:
        """Whether the result is dw."""
        return self.direction == "backward_filter"

    @property
    def workspace(self) -> int:
        """Bytes: the shares of dw."""
        return 4 * self.shape.channels * self.shape.taps * self.shares if self.shares > 1 else 0

    @property
    def chunks(self) -> int:
        """Blocks of channels."""
        return -(-self.shape.channels // self.config.channels)

    @property
    def strips(self) -> int:
        """Strips of a row of a phase; with stages, groups of strips next to each other."""
        d, v = self.shape, self.config
        if v.kind == "scatter":
            strips = -(-d.windows(2)[1] // (v.columns // d.stride[2]))
        else:
            of_phase = -(-d.output[2] // self.phases[1])
            strips = -(-of_phase // v.columns)
        return -(-strips // v.strips) if v.stages else strips

    @property
    def phases(self) -> tuple[int, int]:
        """Phases of rows and of columns."""
        d = self.shape
        if self.config.kind in ("plain", "planes"):
            return 1, 1
        if self.config.kind == "any":
            return 1, d.phases(2) if slides(d) else 1
        return d.phases(1), d.phases(2)

    @property
    def walked(self) -> int:
        """Rows of a phase that threads walk down."""
        d = self.shape
        if self.config.kind == "scatter":
            return d.windows(1)[1]
        return -(-d.output[1] // self.phases[0])

    @property
    def segments(self) -> int:
        """Into which a phase's rows are cut."""
        return -(-self.walked // self.rows)

    @property
    def work_tiles(self) -> int:
        """Threads' worths of outputs of a channel, or of all y's planes; with stages, blocks'."""
        d = self.shape
        if self.config.kind == "planes":
            channels = 1 if self.gradient else d.channels
            return d.batch * channels * self.segments * self.strips
        return (
            -(-d.batch // self.config.images)
            * d.output[0]
            * math.prod(self.phases)
            * self.segments
            * self.strips
        )

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks of the launch in three dimensions."""
        d, v = self.shape, self.config
        if v.kind != "plain":
            return self.blocks, 1, 1
        return self.chunks, -(-self.segments * self.strips // v.slots), d.batch * d.output[0]

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        d, v = self.shape, self.config
        if v.kind == "plain":
            return math.prod(self.grid)
        if v.kind == "planes":
            return d.channels * self.shares if self.gradient else -(-self.work_tiles // v.threads)
        if not self.gradient:
            return self.chunks * (
                self.workers or -(-self.work_tiles // (1 if v.stages else v.slots))
            )
        taps = d.filter[0] * d.filter[1] * -(-d.filter[2] // TOGETHER) if v.kind == "any" else 1
        return self.chunks * taps * self.shares

    @property
    def counted(self) -> bool:
        """Whether 32 bits count work tiles, behind the last one too, and blocks."""
        beyond = max(self.shares, self.workers, 1) * THREADS
        return max(self.work_tiles + beyond, self.blocks) <= MOST

    @property
    def file(self) -> str:
        """The file of the main kernel, which is named after it."""
        if self.config.stages:
            return "staged_filter" if self.gradient else f"staged_{self.config.kind}"
        return f"filter_{self.config.kind}" if self.gradient else self.config.kind

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        if self.config.kind == "planes":
            more = ("", "_any", "_sums") if self.gradient else ("", "_any")
            return {f"winolab_depthwise_{self.file}{name}": 0 for name in more}
        size = shared_memory(self.shape, self.config, self.gradient, ITEMSIZE[self.dtype])
        sums = {"winolab_depthwise_filter_sums": 0} if self.gradient else {}
        return {f"winolab_depthwise_{self.file}": size} | sums
