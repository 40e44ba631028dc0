"""What a grouped layer's call is cut into: slices of channels, phases, work tiles of outputs."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.algorithm import Problem
from winolab.device import REGISTERS, Device
from winolab.gpu.codegen.structs import size
from winolab.gpu.families.axes import Axis, Phased
from winolab.gpu.families.clusters import even
from winolab.gpu.families.grouped.config import EIGHT, ROWS, Bundle, Config, chunks
from winolab.gpu.params import SHARED_LINE, VECTOR
from winolab.gpu.planner.correlation import Correlation

PLACE = size("GroupedPlace", "grouped/patches")
THREAD = 128  # registers that a thread may take


@dataclass(frozen=True)
class Tiling(Phased):
    """One call: what is computed, by which config, on what grid."""

    direction: str
    problem: Problem
    correlation: Correlation
    bundle: Bundle
    precision: str
    dtype: str  # of the operands
    out_dtype: str
    config: Config
    device: Device

    @property
    def slices(self) -> int:
        """Blocks side by side, which have all channels together."""
        return -(-self.correlation.groups // (self.bundle.groups * self.config.slice))

    @property
    def steps(self) -> int:
        """Products that a sum takes, each of two chunks."""
        return -(-self.chunks // 2)

    @property
    def chunks(self) -> int:
        """Eights of channels of all taps of a phase, at most."""
        return chunks(self.correlation, self.bundle)

    @property
    def partial(self) -> bool:
        """Whether phases have fewer taps than others."""
        return any(len(a.of_phases) > 1 for a in self.axes)

    @property
    def across(self) -> int:
        """Work tiles of a phase's row of outputs."""
        return -(-self.axes[2].outputs // self.config.columns)

    @property
    def down(self) -> int:
        """Work tiles of its column."""
        return -(-self.axes[1].outputs // self.config.rows)

    @property
    def work_tiles(self) -> int:
        """Work tiles of a phase and slice."""
        return self.correlation.batch * self.axes[0].outputs * self.down * self.across

    @property
    def pixel(self) -> int:
        """Bytes of a pixel of x in shared memory: an odd number of vectors, so that eight of them
        beside each other are in all banks."""
        return (self.vectors | 1) * VECTOR

    @property
    def vectors(self) -> int:
        """Vectors of a pixel that are copied."""
        return self.config.slice * self.bundle.channels // EIGHT

    def output_step(self, axis: Axis) -> int:
        """Pixels from where a tap meets an output to where it meets the next one."""
        return 1 if axis.rotated else axis.stride

    def span(self, axis: Axis, outputs: int) -> int:
        """Pixels that the taps of so many outputs meet, from the first to the last."""
        return (outputs - 1) * self.output_step(axis) + (axis.most - 1) * axis.step + 1

    @property
    def own(self) -> int:
        """Pixels of a row of the patch that are a stride apart."""
        along = self.axes[2]
        return -(-self.span(along, self.config.columns) // self.output_step(along))

    @property
    def wide(self) -> int:
        """Pixels of a row of the patch."""
        return self.own * self.output_step(self.axes[2])

    @property
    def high(self) -> int:
        """Rows of a level of the patch."""
        return self.span(self.axes[1], self.config.rows)

    @property
    def pixels(self) -> int:
        """Pixels of the patch: a level for every tap along depth."""
        return self.axes[0].most * self.high * self.wide

    @property
    def outputs(self) -> int:
        """Positions of products of a work tile, those that there are not too."""
        together = self.config.tiles * ROWS
        return -(-self.config.positions // together) * together

    @property
    def counted(self) -> bool:
        """Whether a place has bits for how far a work tile's outputs lie from its first one."""
        _, high, wide = self.axes
        down, across = (self.config.rows - 1) * high.phases, (self.config.columns - 1) * wide.phases
        return down < 1 << 15 and across < 1 << 16

    @property
    def row_pitch(self) -> int:
        """Bytes from a row of the patch to the next, so that outputs of two rows that follow each
        other lie in banks as those of one row do."""
        least, wanted = self.wide * self.pixel, self.config.columns * self.pixel
        return least + (wanted - least) % SHARED_LINE

    @property
    def own_rows(self) -> int:
        """Rows of a level of the patch that are a stride apart, which lie side by side."""
        return -(-self.high // self.output_step(self.axes[1]))

    @property
    def level_pitch(self) -> int:
        """Bytes from a level of the patch to the next."""
        return self.own_rows * self.output_step(self.axes[1]) * self.row_pitch

    @property
    def stage(self) -> int:
        """Bytes of a patch."""
        return self.axes[0].most * self.level_pitch

    @property
    def filter_size(self) -> int:
        """Bytes of shared memory that a slice's filter takes, at first."""
        return self.config.slice * self.bundle.eights[1] * self.steps * 256

    @property
    def shared_memory(self) -> int:
        """Bytes of a block: zeros, what chunks meet, places, two patches, the filter."""
        zeros = self.config.bundles * self.bundle.eights[0] * VECTOR
        known = zeros + 2 * self.steps * (4 + 8) + PLACE * (self.pixels + self.outputs)
        second = max(self.stage, self.filter_size) if self.config.kept else self.stage
        lasting = 0 if self.config.kept else self.filter_size
        return -(-known // VECTOR) * VECTOR + lasting + self.stage + second

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor holds."""
        by_registers = REGISTERS // (THREAD * self.config.threads)
        return max(1, min(by_registers, self.device.resident(self.shared_memory)))

    @property
    def workers(self) -> int:
        """Blocks that share the work tiles of a phase and slice."""
        most = max(1, self.resident * self.device.multiprocessors // (self.slices * self.phases))
        return even(self.work_tiles, most)

    @property
    def grid(self) -> int:
        """Blocks of the launch, which stay until all work tiles are done."""
        return self.slices * self.phases * self.workers

    @property
    def rounds(self) -> int:
        """Work tiles of a block, at most."""
        return -(-self.work_tiles // self.workers)

    @property
    def products(self) -> int:
        """Products' positions of a work tile that the busiest of its warps has."""
        v = self.config
        together = v.warp_rows * v.tiles * 16
        return -(-v.positions // together) * v.tiles
