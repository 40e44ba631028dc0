"""Block shapes of nested Winograd on Tensor Cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import Request
from winolab.options import KernelConfig

KC = 32  # channels of a stage
BN = 128  # tiles of a block, at most: nested/products.cuh
MOST_WIDTH = 256  # output channels of a block, whose sums fill the registers
WIDTHS = (32, 48, 64, 96, 128)  # of a partial sum: products that emit.wgmma offers
UNIT = 16  # output channels that blocks are filled up to
ROW_BYTES, BARRIERS = 128, 16  # of a tile in a stage of 32 channels; of a stage's barriers
MORE = 4  # times as many blocks of output channels as there must be, at most
MOST_STAGES = 8


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernels: policies of nested_*.cuh, by their names."""

    width_0: int  # output channels of a block, in two partial sums
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


def block_outputs(channels: int) -> Iterator[tuple[int, int]]:
    """Output channels of a block, as two partial sums: the fewest that so many blocks take, from as
    few blocks as there can be to MORE times as many, which fill more multiprocessors."""
    least = -(-channels // MOST_WIDTH)
    wanted = (-(-channels // (blocks * UNIT)) * UNIT for blocks in range(least, MORE * least + 1))
    yield from dict.fromkeys(
        min((sum(s), s) for s in _sums() if sum(s) >= width)[1] for width in wanted
    )


@lru_cache(maxsize=1)
def _sums() -> tuple[tuple[int, int], ...]:
    alone = [(w, 0) for w in WIDTHS]
    return (*alone, *((a, b) for a in WIDTHS for b in WIDTHS if b <= a))


def configs(request: Request, c: Correlation) -> Iterator[Config]:
    """Block shapes, with as many stages as have room."""
    vectors = {"xvec": c.channels, "yvec": c.out_channels}
    aligned = {k: 2 if request.aligned and n % 2 == 0 else 1 for k, n in vectors.items()}
    for sums in block_outputs(c.out_channels):
        stage = Config(*sums, 1).shared_memory
        yield Config(*sums, min(request.device.shared_memory // stage, MOST_STAGES), **aligned)
