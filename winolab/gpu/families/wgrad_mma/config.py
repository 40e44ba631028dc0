"""Block shapes of fused Ωα(n,r) on mma.sync."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

from winolab.algorithm import Tile
from winolab.gpu.codegen.structs import size
from winolab.options import KernelConfig

CONSUMERS, WARPS = 256, 8  # threads and warps of a block that multiply
KC = 16  # units of a stage: one instruction's
UNIT = size("Unit", "gradient_scheduler")
STAGED = 8  # rows of each state and warp that the epilogue has at once


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of one kernel: policies of wgrad_mma/kernel.cuh, by its names."""

    bi: int  # input channels of a block
    bo: int  # output channels of a block
    stages: int
    kc: int = KC
    pad: int = 8  # values behind a unit's channels, so that ldmatrix meets no bank twice; or 0
    sums: int = 32  # bits of the accumulators; 16: FP16's, as the paper's
    scaled: int = 1  # whether rows of G and BT have an L1 norm of 1: else FP16 loses small states
    half2: int = 0  # whether transforms are of pairs of 16-bit numbers, not in FP32
    ahead: int = 0  # steps whose columns lie in shared memory; 0: those of one lie in registers
    paired: int = 1  # whether rows of points p and -p share products in the transforms
    staged: int = 8  # floats behind a row that the epilogue stages; the paper's: 2
    wrap: int = 0  # whether units run from one row of dy into the next
    vector: int = 1  # whether channels are loaded in pairs
    dwvec: int = 2  # outputs of a store
    producers: int = 256  # threads of a block that transform
    consumer_registers: int = 168  # of a thread; 0 and 0: as many as the launch gives
    producer_registers: int = 88  # 512 × 128 in all, what the launch allocates: more never arrives

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return CONSUMERS + self.producers

    def constants(self) -> dict[str, int]:
        """The constants of the source, by name."""
        apart = ("paired", "staged", *(() if self.ahead else ("ahead",)))  # said by other texts
        fields = asdict(self).items()
        return {name.upper(): value for name, value in fields if name not in apart}

    @property
    def scaling(self) -> str | None:
        """What scales the transforms' rows: states are no larger than data (WinRS, section 5)."""
        return "l1" if self.scaled else None

    def sharers(self, alpha: int) -> int:
        """Warps that multiply one state, each for its part of the output channels."""
        return max(1, WARPS // alpha)

    def shared_memory(self, tile: Tile) -> int:
        """Bytes of the kernel's shared memory."""
        alpha, raw = tile.alpha, 0
        for columns, channels in ((alpha, self.bi), (tile.r, self.bo)):
            raw += 2 * self.kc * channels * (columns + (channels < 64))
        stage = 2 * alpha * self.kc * (self.bi + self.bo + 2 * self.pad)
        staged = 4 * max(alpha, WARPS) * STAGED * (self.bi + self.staged)
        units = 2 * self.producers * UNIT
        return self.stages * (stage + 16) + staged + units + self.ahead * raw

    def simulated(self, precision: str) -> str:
        """What the reference calls the arithmetic."""
        transform = f",transform={precision},outputs=fp32" if self.half2 else ""
        if self.sums == 16:  # chunks are aligned as for sums in FP32
            transform += ",accumulate=fp16"
            return f"{precision}{transform},accumulation=tensor_core:16:15:nearest"
        return f"{precision}{transform},accumulation=tensor_core:16:2:truncate"

    def __str__(self) -> str:
        names = (
            "pad",
            "sums",
            "scaled",
            "half2",
            "ahead",
            "paired",
            "staged",
            "wrap",
            "vector",
            "dwvec",
        )
        changed = [
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)
            if f.name in names and getattr(self, f.name) != f.default
        ]
        return " ".join([f"{self.bi}x{self.bo}x{self.kc} stages={self.stages}", *changed])


# Block shapes by number of states. 32,768 accumulators fill the registers of the consumers;
# smaller blocks serve few channels.
CONFIGS: dict[int, tuple[Config, ...]] = {
    4: (Config(64, 128, 6), Config(64, 64, 6)),
    8: (Config(64, 64, 4), Config(64, 32, 5), Config(32, 64, 5), Config(32, 32, 6)),
    16: (Config(64, 32, 3), Config(32, 32, 3)),
}
# With sums in FP16 the paper's blocks fit (WinRS, footnote 3), but not into 99 KB: named, never
# chosen.
FP16_SUMS: dict[int, Config] = {
    4: Config(64, 128, 6, sums=16),
    8: Config(64, 128, 3, sums=16),
    16: Config(64, 64, 2, sums=16),
}
# Where registers do not change hands, 384 threads have 168 each; a block has 99 KB of shared memory
# (compute capability 8.6, 8.9, 12.0) or 163 KB (8.0).
EARLIER: dict[int, tuple[Config, ...]] = {
    alpha: tuple(
        replace(v, producers=128, consumer_registers=0, producer_registers=0) for v in shapes
    )
    for alpha, shapes in {
        4: (Config(64, 128, 4), Config(64, 64, 4)),
        8: (Config(64, 64, 3), Config(64, 32, 3), Config(32, 32, 3)),
        16: (Config(64, 32, 2), Config(32, 16, 2)),
    }.items()
}
