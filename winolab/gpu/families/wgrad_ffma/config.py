"""Block shapes of Ωα(n,r) on FFMA units."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

from winolab.algorithm import Tile
from winolab.gpu.codegen.structs import size
from winolab.options import KernelConfig

PRODUCERS = 128  # threads of a block
UNITS = 2 * 128 * size("Unit", "gradient_scheduler")  # bytes of the tables of units
# Units after which a sum is transformed and added to what the block has stored, by alpha: where
# rows of dy are not narrow, and where they are (narrow_rows). Until then each state's sum grows,
# whose roundings are what errors on U[0, 1] consist of. With 2048 units, F(5,12) has a MARE of
# 1.2e-5 on 7 columns and 4e-6 on 15; as it is, all are below 9e-7 (simulated; with 48 for 40 an
# H100 had 1.03e-6 at 7² × 1024). At alpha 16 that takes 8 to 14 % of the time, and 26 to 50 % where
# rows are narrow.
FOLDS = {1: (2048, 2048), 4: (2048, 2048), 8: (2048, 512), 16: (256, 40)}
# With moduli beyond points as well: Ω19(9,8) has 8e-7 on 7 columns, 8.8e-7 on 5 (simulated).
FOLDS |= {**dict.fromkeys((9, 10, 12, 15), FOLDS[8]), 19: (512, 128)}


# Fields that programs and macros say.
SAID = ("paired", "turned", "consumers")


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of one kernel: policies of wgrad_ffma/kernel.cuh, by its names."""

    bi: int  # input channels of a block
    bo: int  # output channels of a block
    kc: int  # units of a stage
    ci: int  # input channels that a producer thread transforms at once
    co: int  # output channels that a producer thread transforms at once
    stages: int
    passes: int  # over the staging memory of the epilogue
    state_blocks: int = 1  # blocks of a cluster, each of which holds its part of the states
    paired: int = 1  # whether rows of points p and -p share products in the transforms
    turned: int = 1  # whether lanes stage their floats in turn, so that no bank is met twice
    wrap: int = 0  # whether units run from one row of dy into the next
    vector: int = 1  # whether channels are loaded ci and co at once
    dwvec: int = 2  # floats of a store of dw
    consumer_registers: int = 192  # of a thread; 0 and 0: as many as the launch gives
    producer_registers: int = 120  # 384 × 168 in all, what the launch allocates: more never arrives
    consumers: int = 256  # threads that multiply

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.consumers + PRODUCERS

    def constants(self) -> dict[str, int]:
        """The constants of the source, by name."""
        fields = asdict(self).items()
        return {name.upper(): value for name, value in fields if name not in SAID}

    @property
    def warps(self) -> int:
        """Warps that multiply."""
        return self.consumers // 32

    def states(self, tile: Tile) -> int:
        """Those of all blocks: the tile's and, where blocks have no equal shares, some of zeros."""
        return self.state_blocks * -(-tile.alpha // self.state_blocks)

    def leaves_out(self, tile: Tile) -> bool:
        """Whether warps have no equal shares of a block's states."""
        held = self.states(tile) // self.state_blocks
        return min(held % self.warps, self.warps % held) > 0

    def lane(self, alpha: int) -> tuple[int, int]:
        """Input × output channels of a consumer lane, in each of its warp's states."""
        sharers = max(1, self.warps // -(-alpha // self.state_blocks))  # warps of a state
        return self.bi // 8, self.bo // sharers // 4

    def shared_memory(self, tile: Tile) -> int:
        """Bytes of the kernel's shared memory."""
        stage = self.kc * (self.bi + self.bo)
        staged = self.stages * stage + self.bo * self.bi // self.passes
        return (
            4 * (self.states(tile) // self.state_blocks) * staged + UNITS + 16 * (self.stages + 1)
        )

    def __str__(self) -> str:
        names = ("state_blocks", "paired", "turned", "wrap", "vector", "dwvec")
        changed = [
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)
            if f.name in names and getattr(self, f.name) != f.default
        ]
        return " ".join([f"{self.bi}x{self.bo}x{self.kc} stages={self.stages}", *changed])


# Block shapes by number of states. 32,768 accumulators a block fill the registers of 256 consumer
# threads; smaller blocks serve few channels.
CONFIGS: dict[int, tuple[Config, ...]] = {
    1: (Config(128, 256, 8, 4, 4, 6, 2), Config(64, 256, 8, 4, 4, 6, 1)),
    4: (Config(128, 64, 8, 4, 4, 5, 2), Config(64, 64, 8, 4, 4, 6, 1)),
    8: (
        Config(64, 64, 8, 4, 4, 4, 2),
        Config(64, 32, 8, 4, 2, 4, 1),
        Config(32, 64, 8, 2, 4, 4, 1),
        Config(32, 32, 8, 2, 2, 6, 1),
    ),
    16: (
        Config(64, 64, 4, 2, 2, 8, 2, state_blocks=2),
        Config(64, 32, 4, 2, 1, 6, 2),
        Config(32, 32, 4, 1, 1, 6, 1),
    ),
}
# Moduli beyond points, whose tiles have more states than a unit has columns, by name alone: a warp
# a state, and registers as the launch gives them. Fifteen and nineteen states take two blocks, the
# last of which has a state of zeros; in one, 608 and 736 threads have too few registers.
MODULI: dict[int, tuple[Config, ...]] = {
    alpha: (replace(v, consumers=threads, consumer_registers=0, producer_registers=0),)
    for alpha, threads, v in (
        (9, 288, Config(64, 32, 8, 4, 2, 4, 1)),
        (10, 320, Config(64, 32, 8, 4, 2, 4, 1)),
        (12, 384, Config(64, 32, 8, 4, 2, 4, 2)),
        (19, 320, Config(32, 64, 4, 1, 2, 8, 1, state_blocks=2)),
    )
} | {15: CONFIGS[16][:1]}
# Where blocks are not Hopper's, all threads have the same 168 registers, at most 64 of them
# accumulators, and a block has 99 KB of shared memory (compute capability 8.6, 8.9, 12.0) or 163 KB
# (8.0).
EARLIER: dict[int, tuple[Config, ...]] = {
    alpha: tuple(replace(v, consumer_registers=0, producer_registers=0) for v in shapes)
    for alpha, shapes in {
        1: (Config(64, 256, 8, 4, 4, 4, 2),),
        4: (Config(64, 64, 8, 4, 4, 4, 2),),
        8: (Config(64, 32, 8, 4, 2, 4, 2), Config(32, 32, 8, 2, 2, 4, 1)),
        16: (Config(32, 32, 4, 1, 1, 4, 1), Config(32, 16, 8, 2, 1, 2, 1)),
    }.items()
}
