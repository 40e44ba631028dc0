"""Block shapes of the kernel of thin layers' filter gradients, and which of them serve one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from winolab.device import REGISTERS
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.params import VECTOR
from winolab.options import KernelConfig

FEW = 16  # most channels of the few side
SIDES = ("x", "dy")  # which of them may have many channels: is wide
LANES, THREADS = 32, 128  # most lanes; threads of a block, about
MOST_THREADS = 256  # the same where a position has more columns than THREADS
SUMS, MOST_COLUMNS = 112, 32  # of a thread, at most
POSITIONS = (2, 4, 8)
HELD, FEWEST = 29, 66  # registers of a thread beside its sums and what it multiplies; in all
MOST_WARPS = 48  # that a multiprocessor holds, of 8.6 and 8.9, which hold the fewest
SUMMED = 16 << 10  # bytes of slots' sums in shared memory, at once
MOST_SHARED = 72 << 10  # bytes of a block
SUMS_AT_ONCE, SLICES = 32, 16  # of the launch that adds shares up: sums of a block, threads of each
PLACE = 32  # bytes of a position's place in shared memory


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of a kernel whose side ``wide`` has many channels.

    ``lanes`` threads have ``vector`` channels each, of ``few`` columns: taps and channels of the
    other side; ``column_groups`` of them have all columns of a block. A thread has ``positions`` of
    a chunk.
    """

    wide: str
    lanes: int
    vector: int
    positions: int
    few: int
    column_groups: int

    def __str__(self) -> str:
        shape = f"{self.lanes}x{self.vector} positions={self.positions}"
        return f"{self.wide} {shape} few={self.few} column_groups={self.column_groups}"

    @property
    def width(self) -> int:
        """Channels of a block."""
        return self.lanes * self.vector

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.column_groups * self.few

    @property
    def slots(self) -> int:
        """Positions that a block has at once."""
        most = THREADS if self.columns <= THREADS else MOST_THREADS
        return max(1, most // (self.lanes * self.column_groups))

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lanes * self.column_groups * self.slots

    @property
    def together(self) -> int:
        """Positions of a chunk."""
        return self.positions * self.slots

    @property
    def row(self) -> int:
        """Floats of a position's columns in shared memory, as kernel.cuh has them."""
        held = self.few if self.few <= 2 else -(-self.few // 4) * 4
        size = self.column_groups * held
        return size + 4 * (size > 4 and size % 8 == 0)

    @property
    def shared_memory(self) -> int:
        """Bytes of a block: two chunks with their places, and in their place sums."""
        words = VECTOR // 4 if self.vector > 1 else 1
        of_side = (-(-8 * self.together * n // 16) * 16 for n in (self.row, self.lanes * words))
        chunks = sum(of_side) + 2 * self.together * PLACE
        at_once = min(self.few, SUMMED // (4 * self.threads * self.vector))
        return max(chunks, 4 * at_once * self.threads * self.vector)

    @property
    def registers(self) -> int:
        """About how many a thread takes."""
        return max(FEWEST, self.few * (self.vector + 1) + self.vector + HELD)

    @property
    def resident(self) -> int:
        """Blocks of which registers are enough: each scheduler has a quarter of them, and of the
        warps, which take whole eights of them each."""
        warps = -(-self.threads // 32)
        enough = (
            n
            for n in range(MOST_WARPS // warps, 1, -1)
            if REGISTERS // 128 // -(-n * warps // 4) // 8 * 8 >= self.registers
        )
        return next(enough, 1)

    def serves(self, g: Gradient, size: int) -> bool:
        """Whether the kernel computes it; ``size``: bytes of an element of x and dy."""
        wide, few = sides(g, self.wide)
        vectors = self.vector == 1 or (self.vector * size == VECTOR and wide % self.vector == 0)
        threads = 1 <= self.lanes <= LANES and self.lanes * self.column_groups <= MOST_THREADS
        shape = self.few * self.vector <= SUMS and self.shared_memory <= MOST_SHARED
        return few <= FEW and vectors and threads and shape


def sides(g: Gradient, wide: str) -> tuple[int, int]:
    """Channels of the wide side, and of the other one."""
    both = g.channels, g.out_channels
    return both if wide == "x" else (both[1], both[0])


def configs(g: Gradient, size: int) -> Iterator[Config]:
    """Block shapes that serve it; ``size``: as of ``Config.serves``."""
    for side in SIDES:
        wide, few = sides(g, side)
        columns = math.prod(g.filter) * few
        vector = VECTOR // size if wide % (VECTOR // size) == 0 else 1
        vectors = wide // vector
        fewest = -(-columns // min(MOST_COLUMNS, SUMS // vector))
        blocks = -(-vectors // LANES)
        shapes = {
            (-(-vectors // m), _column_groups(columns, column_groups, -(-vectors // m)))
            for m in {blocks, min(2 * blocks, vectors)}
            for column_groups in {fewest, min(2 * fewest, columns)}
        }
        for (lanes, (held, column_groups)), positions in (
            (shape, n) for shape in sorted(shapes) for n in POSITIONS
        ):
            v = Config(side, lanes, vector, positions, held, column_groups)
            if v.serves(g, size):
                yield v


def _column_groups(columns: int, column_groups: int, lanes: int) -> tuple[int, int]:
    """Columns of a thread, and a block's groups of them, where so many threads have all columns."""
    held = -(-columns // column_groups)
    column_groups = -(-columns // held)
    blocks = -(-column_groups // (MOST_THREADS // lanes))
    return held, -(-column_groups // blocks)
