"""What a thin layer's call is cut into: work tiles of positions of a phase, blocks of channels."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.algorithm import Problem
from winolab.device import REGISTERS, Device
from winolab.gpu.families.axes import Phased, flattened, row
from winolab.gpu.families.clusters import even
from winolab.gpu.families.thin.config import THREADS, Config
from winolab.gpu.planner.correlation import Correlation


@dataclass(frozen=True)
class Tiling(Phased):
    """One call: what is computed, by which config, on what grid."""

    direction: str
    problem: Problem
    correlation: Correlation
    precision: str
    dtype: str  # of the operands
    out_dtype: str
    config: Config
    device: Device

    @property
    def blocks_n(self) -> int:
        """Work tiles of a phase."""
        return -(-self.positions // self.config.together)

    @property
    def work_tiles(self) -> int:
        """Work tiles of all phases, each of all output channels or of a block's."""
        return self.blocks_n * self.phases

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        if self.config.kind == "outputs":
            return 1
        return -(-self.correlation.out_channels // self.config.width)

    @property
    def shared_memory(self) -> int:
        """Bytes of a block."""
        return self.config.shared_memory(self.correlation)

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor holds."""
        by_registers = REGISTERS // (THREADS * self.config.registers(self.correlation))
        return max(1, min(by_registers, self.device.resident(self.shared_memory)))

    @property
    def workers(self) -> int:
        """Blocks that share the work tiles of a block of output channels."""
        most = max(1, self.resident * self.device.multiprocessors // self.blocks_m)
        return even(self.work_tiles, most)

    @property
    def grid(self) -> int:
        """Blocks of the launch, which stay until all work tiles are done."""
        return self.workers * self.blocks_m

    @property
    def row(self) -> Correlation:
        """The same with all positions as one row, where single taps meet all of them in order."""
        c = self.correlation
        return row(c) if flattened(c) else c
