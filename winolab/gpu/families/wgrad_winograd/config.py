"""Block shapes of the products of Ωα(n,r) on Tensor Cores."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.options import KernelConfig
from winolab.ref.arithmetic.split import products


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernels: policies of products_*.cuh, by their names."""

    groups: int  # warpgroups that multiply
    groups_m: int  # of them along the output channels
    bn: int  # channels of a block
    ks: int  # positions of a stage
    stages: int
    resident: int = 1  # blocks of a multiprocessor
    xvec: int = 2  # elements of a load: 2 of FP32, 4 of 16 bits; 1 where they are not aligned
    wgmma: int = 1  # or mma.sync: products_mma.cuh
    sums: int = 32  # bits of the accumulators; 16: FP16's, mma.sync's

    @property
    def products(self) -> str:
        """The file of the products, which their kernel is named after."""
        return "products_wgmma" if self.wgmma else "products_mma"

    @property
    def bm(self) -> int:
        """Output channels of a block."""
        return 64 * self.groups_m

    def shared_memory(self, parts: int) -> int:
        """Bytes of the kernel's shared memory."""
        barriers = 16 if self.wgmma else 0
        return self.stages * (parts * 2 * self.ks * (self.bm + self.bn) + barriers)

    @property
    def threads(self) -> int:
        """Threads of a block of the products: on wgmma, a warpgroup more brings the operands."""
        return 128 * (self.groups + self.wgmma)

    def simulated(self, precision: str) -> str:
        """What the reference calls the arithmetic of the sums."""
        if self.sums == 16:  # chunks are aligned as for sums in FP32
            return f"{precision},accumulate=fp16,accumulation=tensor_core:16:15:nearest"
        outside = f":{products(2) * self.ks}" if precision == "fp32_split" else ""
        return f"{precision},accumulation=tensor_core:16:2:truncate{outside}"

    def __str__(self) -> str:
        unit = "" if self.wgmma else " mma.sync"
        sums = "" if self.sums == 32 else f" sums={self.sums}"
        return f"{self.bm}x{self.bn}x{self.ks} stages={self.stages} xvec={self.xvec}{unit}{sums}"


# Block shapes by number of parts: 128 and 64 accumulators a thread, and what serves 64 channels.
CONFIGS: dict[int, tuple[Config, ...]] = {
    1: (
        Config(2, 2, 256, 64, 4),
        Config(2, 1, 256, 64, 5),
        Config(2, 2, 128, 64, 6),
        Config(2, 2, 64, 64, 4, 2),
        Config(1, 1, 128, 64, 4, 2),
        Config(1, 1, 64, 64, 4, 3),
    ),
    2: (
        Config(2, 2, 256, 32, 4),
        Config(2, 1, 256, 32, 5),
        Config(2, 2, 128, 32, 6),
        Config(2, 2, 64, 32, 4, 2),
        Config(1, 1, 128, 32, 4, 2),
        Config(1, 1, 64, 32, 3, 4),
    ),
}
# The same on mma.sync, in the 99 KB that a block has on compute capability 8.6 and 8.9.
MMA_CONFIGS: dict[int, tuple[Config, ...]] = {
    1: (
        Config(2, 2, 128, 32, 5, wgmma=0),
        Config(2, 2, 64, 32, 4, 2, wgmma=0),
        Config(1, 1, 64, 32, 4, 3, wgmma=0),
    ),
    2: (
        Config(2, 2, 128, 32, 3, wgmma=0),
        Config(2, 2, 64, 32, 3, wgmma=0),
        Config(1, 1, 64, 32, 3, 2, wgmma=0),
    ),
}
# WinRS's FP16 kernels keep their sums in FP16: for comparison, never chosen.
FP16_SUMS = Config(2, 2, 128, 32, 5, wgmma=0, sums=16)
