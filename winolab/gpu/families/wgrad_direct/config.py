"""Block shapes of direct filter gradients on wgmma: by columns, of few taps, of split data."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from winolab.gpu.codegen.structs import size
from winolab.options import KernelConfig

KC = 64  # positions of a column
PRODUCERS = 128  # threads of a block that copy
CONSUMERS = 256  # threads of a block that multiply, two warpgroups
# Bytes of column_sweep.cuh's structs in shared memory.
WORK, SOURCE = (
    size(struct, "wgrad_direct/column_sweep") for struct in ("ColumnScheduler", "RowSource")
)


@dataclass(frozen=True)
class DirectConfig(KernelConfig):
    """A block of ``bo`` output and ``bi`` input channels, and of ``n`` taps of a filter row."""

    n: int
    bi: int
    bo: int

    @property
    @abstractmethod
    def shared_memory(self) -> int:
        """Bytes of a block."""


@dataclass(frozen=True)
class ColumnsConfig(DirectConfig):
    """The compile-time shape of the kernel: policies of columns.cuh, by its names."""

    n: int  # taps of a filter row that share columns of x
    bi: int  # input channels of a block
    bo: int  # output channels of a block: 64, or 64 of each warpgroup
    stages: int  # columns on their way

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory."""
        slots = self.stages + 2 * (self.n - 1)  # column_sweep.cuh
        size = 2 * KC * (self.stages * self.bo + slots * self.bi)
        return size + 16 * self.stages + 2 * WORK + SOURCE

    def __str__(self) -> str:
        return f"{self.bo}x{self.bi} columns, taps={self.n} stages={self.stages}"


# Blocks have several taps, which share columns of x. Of blocks of one tap wgrad_im2col
# takes 0.5 to 0.86 of their time, and 1.07 in one of 88 layers (docs/notes/105).
COLUMNS = (
    ColumnsConfig(2, 128, 128, 5),
    ColumnsConfig(3, 128, 128, 4),
    ColumnsConfig(3, 64, 128, 8),
    ColumnsConfig(4, 64, 128, 7),
    ColumnsConfig(5, 64, 128, 6),
    ColumnsConfig(6, 64, 128, 6),
    ColumnsConfig(8, 64, 64, 6),
)
# Blocks of one tap, which long sums have that cuBLASLt may not cut (docs/notes/127): clusters have
# eight parts at most, and take 75 µs for 32 × 73² × 64 → 80 where these take 31 (positions.jsonl).
POINTWISE = (
    ColumnsConfig(1, 256, 128, 4),
    ColumnsConfig(1, 128, 128, 6),
    ColumnsConfig(1, 64, 128, 8),
)
LONG = 1 << 15  # positions


@dataclass(frozen=True)
class NarrowConfig(DirectConfig):
    """The compile-time shape of the kernel: policies of narrow.cuh, by its names."""

    n: int  # taps of a filter row that share a stage of x
    bi: int  # input channels of a block
    bo: int  # output channels of a block: 64, or 64 of each warpgroup
    stages: int
    kc: int  # positions of a stage
    producers: int = 128  # threads that copy

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory."""
        rows = self.kc + (8 if self.n > 1 else 0)
        stage = 128 * (self.bo // 64 * self.kc + self.bi // 64 * rows)
        return self.stages * (stage + 16) + 3 * 16 * self.producers

    @property
    def halves(self) -> int:
        """Warpgroups that have a half of the positions each, where taps do not divide by two."""
        return 2 if self.bo // 64 * self.n % 2 else 1

    def __str__(self) -> str:
        block = f"{self.bo}x{self.bi}x{self.kc} taps={self.n} stages={self.stages}"
        return f"{block} producers={self.producers}"


# Block shapes that sums by columns do not beat. Stages of 128 positions are up to 15 % faster than
# twice as many of 64; more producers are 5 to 11 % faster where copies bind.
NARROW = (
    NarrowConfig(3, 64, 64, 6, 128, 256),
    NarrowConfig(4, 64, 64, 6, 128, 256),
)


@dataclass(frozen=True)
class SplitConfig(DirectConfig):
    """The compile-time shape of the kernel: policies of split.cuh, by its names."""

    n: int  # taps of a filter row that share columns of x
    bi: int  # input channels of a block
    bo: int  # output channels of a block: 64, or 64 of each warpgroup
    stages: int  # columns of dy that wait to be multiplied
    depth: int  # steps of 16 positions that make a partial sum
    producers: int = PRODUCERS  # threads that split x and dy

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory."""
        slots = self.stages + self.n - 1  # column_sweep.cuh
        size = 2 * 2 * KC * (self.stages * self.bo + slots * self.bi)
        size += 4 * (KC + 1) * (self.bo + self.bi)  # a stage on its way, and sums of squares
        size += 16 * self.stages + 16 + 2 * WORK + SOURCE
        return -(-size // 16) * 16

    def __str__(self) -> str:
        block = f"{self.bo}x{self.bi} columns, taps={self.n} stages={self.stages}"
        more = f" producers={self.producers}" * (self.producers != PRODUCERS)
        return f"{block} depth={self.depth}{more}"


# A tap alone: a column's products take a fourth of what its parts take 128 producers; with 256 a
# block has 16 warps (docs/notes/082).
SPLIT = (
    SplitConfig(1, 128, 128, 2, 4, 256),
    SplitConfig(1, 128, 128, 2, 4),
    SplitConfig(2, 128, 128, 2, 2),
    SplitConfig(2, 64, 64, 4, 4),
    SplitConfig(3, 64, 128, 3, 4),
    SplitConfig(4, 64, 64, 3, 4),
    SplitConfig(5, 32, 128, 3, 4),
    SplitConfig(6, 64, 64, 3, 4),
    SplitConfig(7, 32, 128, 2, 4),
    SplitConfig(8, 64, 64, 2, 2),
)
