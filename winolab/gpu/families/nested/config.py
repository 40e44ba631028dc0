"""Block shapes of nested Winograd on Tensor Cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import Request
from winolab.options import KernelConfig

KC = {"fp32_split": 32, "fp16": 64, "bf16": 64}  # channels of a stage
STEP = 16  # channels of a product of 16 bits
BN = 128  # tiles of a block, at most: nested/products.cuh
MOST_WIDTH = 256  # output channels of a block, whose sums fill the registers
WIDTHS = (32, 48, 64, 96, 128)  # of a partial sum: products that emit.wgmma offers
ALONE = (*WIDTHS, 160, 192, 224, 256)  # of sums that are added nowhere else, of 16 bits
UNIT = 16  # output channels that blocks are filled up to
ROW_BYTES, BARRIERS = 128, 16  # of a tile in a stage; of a stage's barriers
STAGED_THREADS = 256  # of a block whose transforms exchange what they have in shared memory
STAGED_LANES = 32  # pairs of output channels of such a block
MORE = 4  # times as many blocks of output channels as there must be, at most
MOST_STAGES = 8


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernels: policies of nested_*.cuh, by their names."""

    width_0: int  # output channels of a block, of split FP32 in two partial sums
    width_1: int
    stages: int
    xvec: int = 2  # elements of a load of x, of a store of y; 1 where they are not aligned
    yvec: int = 2

    @property
    def bm(self) -> int:
        """Output channels of a block."""
        return self.width_0 + self.width_1

    @property
    def shared_memory(self) -> int:
        """Bytes of the products' shared memory."""
        return self.stages * ((BN + self.bm) * ROW_BYTES + BARRIERS)

    def __str__(self) -> str:
        return f"{BN}x{self.bm} stages={self.stages} xvec={self.xvec} yvec={self.yvec}"


def block_outputs(channels: int, split: bool = True) -> Iterator[tuple[int, int]]:
    """Output channels of a block, as two partial sums: the fewest that so many blocks take, from as
    few blocks as there can be to MORE times as many, which fill more multiprocessors."""
    least = -(-channels // MOST_WIDTH)
    wanted = (-(-channels // (blocks * UNIT)) * UNIT for blocks in range(least, MORE * least + 1))
    yield from dict.fromkeys(
        min((sum(s), s) for s in _sums(split) if sum(s) >= width)[1] for width in wanted
    )


@lru_cache(maxsize=2)
def _sums(split: bool) -> tuple[tuple[int, int], ...]:
    alone = [(w, 0) for w in (WIDTHS if split else ALONE)]
    return (*alone, *((a, b) for a in WIDTHS for b in WIDTHS if split and b <= a))


def configs(request: Request, c: Correlation) -> Iterator[Config]:
    """Block shapes, with as many stages as have room."""
    vectors = {"xvec": c.channels, "yvec": c.out_channels}
    aligned = {k: 2 if request.aligned and n % 2 == 0 else 1 for k, n in vectors.items()}
    for sums in block_outputs(c.out_channels, request.precision == "fp32_split"):
        stage = Config(*sums, 1).shared_memory
        yield Config(*sums, min(request.device.shared_memory // stage, MOST_STAGES), **aligned)
