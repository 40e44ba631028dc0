"""What a grouped layer's filter gradient is cut into: slices of channels, taps, shares, work
tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from winolab.device import REGISTERS
from winolab.gpu.families import direct_products
from winolab.gpu.families.wgrad_grouped.config import (
    EIGHT,
    ROWS,
    UNIT,
    Config,
    Span,
    met_pixels,
)
from winolab.gpu.params import SHARED_LINE, VECTOR
from winolab.gpu.planner.request import DTYPES, ITEMSIZE

PLACE = 8  # bytes of an output's place
STAGES = (4, 3, 2)  # of a block: as many as do not take another block's room
HELD = {2: 512, 4: 384}  # threads that a multiprocessor has registers for, by an element's bytes


@dataclass(frozen=True)
class Tiling(direct_products.Tiling):
    """One call: what is computed, by which config, on what grid."""

    span: Span
    config: Config
    shares: int  # of the work tiles: blocks have every so many-th

    @property
    def size(self) -> int:
        """Bytes of an element of x and dy."""
        return ITEMSIZE[DTYPES[self.precision]]

    @property
    def taps(self) -> int:
        """Taps of the filter."""
        return math.prod(self.gradient.filter)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.config.warps(self.span)

    @property
    def slices(self) -> int:
        """Blocks side by side, which have all output channels together."""
        return -(-self.span.units // self.config.units)

    @property
    def tap_blocks(self) -> int:
        """Blocks that have all taps together."""
        return -(-self.taps // self.config.taps)

    @property
    def across(self) -> int:
        """Work tiles of a row of outputs."""
        return -(-self.gradient.output[2] // self.config.columns)

    @property
    def down(self) -> int:
        """Work tiles of a column of outputs."""
        return -(-self.gradient.output[1] // self.config.rows)

    @cached_property
    def work_tiles(self) -> int:
        """Work tiles of all images."""
        groups = -(-self.gradient.batch // self.config.images)
        return groups * self.gradient.output[0] * self.down * self.across

    @cached_property
    def eights(self) -> int:
        """Eights of channels of x that a block has."""
        return self.span.slice_eights(self.config.units)

    @property
    def vectors(self) -> tuple[int, int]:
        """Vectors of a pixel of x and of dy that are copied."""
        return (
            self.eights * EIGHT * self.size // VECTOR,
            self.config.units * UNIT * self.size // VECTOR,
        )

    @property
    def pixels_apart(self) -> tuple[int, int]:
        """Bytes from a pixel of x, and of dy, to the next in shared memory, as in tiles.cuh."""
        x, dy = (n | 1 if self.size == 2 else n + 2 * (n % 4 != 2) for n in self.vectors)
        return x * VECTOR, dy * VECTOR

    @property
    def own(self) -> int:
        """Pixels of a row of the patch that are a stride apart."""
        return -(-met_pixels(self.gradient, 2, self.config.columns) // self.gradient.stride[2])

    @property
    def wide(self) -> int:
        """Pixels of a row of the patch."""
        return self.own * self.gradient.stride[2]

    @property
    def high(self) -> int:
        """Rows of a level of the patch."""
        return met_pixels(self.gradient, 1, self.config.rows)

    @property
    def levels(self) -> int:
        """Levels of all patches of a work tile: one for every image and tap along depth."""
        return self.config.images * self.gradient.filter[0]

    @cached_property
    def positions(self) -> int:
        """Outputs of a work tile's products, those that fill them up too."""
        return -(-self.config.outputs // ROWS) * ROWS

    @cached_property
    def row_pitch(self) -> int:
        """Bytes from a row of the patch to the next, so that outputs of two rows that follow each
        other lie in banks as those of one row do, where there is such a distance."""
        pixel, _ = self.pixels_apart
        return _in_banks(self.wide * pixel, self.gradient.stride[1], self.config.columns * pixel)

    @cached_property
    def level_pitch(self) -> int:
        """Bytes from a level of the patch to the next, of two images alike."""
        pixel, _ = self.pixels_apart
        outputs = self.config.rows * self.config.columns
        return _in_banks(self.high * self.row_pitch, self.gradient.filter[0], outputs * pixel)

    @cached_property
    def patch(self) -> int:
        """Bytes of all patches."""
        return self.levels * self.level_pitch

    @cached_property
    def stage(self) -> int:
        """Bytes of patches and of outputs' dy."""
        return self.patch + self.positions * self.pixels_apart[1]

    def room(self, stages: int) -> int:
        """Bytes of a block: places, and stages, in whose place sums are added up."""
        alone = self.config.warp_rows == 1 and self.size == 2
        sums = 0 if alone else 4 * 4 * self.config.taps * self.span.tiles * self.threads
        return -(-PLACE * self.positions // VECTOR) * VECTOR + max(stages * self.stage, sums)

    def holding(self, stages: int) -> int:
        """Blocks that a multiprocessor holds of so many stages."""
        return min(self.held, self.device.resident(self.room(stages)))

    @cached_property
    def stages(self) -> int:
        """How many there are."""
        return next(n for n in STAGES if self.holding(n) >= self.holding(STAGES[-1]))

    @property
    def shared_memory(self) -> int:
        """Bytes of a block."""
        return self.room(self.stages)

    @property
    def counted(self) -> bool:
        """Whether a place has bits for a work tile's rows and columns."""
        return self.high < 1 << 15 and self.wide < 1 << 16

    @property
    def held(self) -> int:
        """Blocks of which a multiprocessor has registers enough."""
        return max(1, min(HELD[self.size], REGISTERS // 128) // self.threads)

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor holds."""
        return max(1, self.holding(self.stages))

    @property
    def blocks(self) -> int:
        """Blocks of a share."""
        return self.slices * self.tap_blocks

    @property
    def grid(self) -> int:
        """Blocks of the launch."""
        return self.blocks * self.shares

    @property
    def rounds(self) -> int:
        """Work tiles of a block, at most."""
        return -(-self.work_tiles // self.shares)

    @property
    def workspace(self) -> int:
        """Bytes: a bucket a share, where there are several."""
        return 4 * self.shares * self.gradient.weights if self.shares > 1 else 0


def _in_banks(least: int, times: int, wanted: int) -> int:
    """The least distance of whole vectors that so many times over is ``wanted`` in banks of shared
    memory; ``least`` where there is none."""
    found = (
        least + n
        for n in range(0, SHARED_LINE, VECTOR)
        if (times * (least + n) - wanted) % SHARED_LINE == 0
    )
    return next(found, least)
