"""Tiles of the kernel of few positions, and which of them serve a product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from winolab.gpu.params import VECTOR
from winolab.options import KernelConfig

POSITIONS = 64  # at most, of a layer that nobody names a config for
WARP = 32
WARPS = 2  # of a block at least
# All powers of two would have 161 kernels for networks' layers, not 105, and be predicted to take
# 1.1 % less.
ROWS = (1, 4, 8)
COLUMNS = (1, 4)  # of a forward pass; else a vector
LANES = (1, 4, 16)
SHARES = (1, 4, 8)
# Lanes of a tile whose warps add up through shared memory: fewer keep more sums each than it holds.
SHARING_LANES = 8
VALUES = 64  # sums of a thread at most
# The same of backward data: with 64 of 16 bits it takes up to twice as long (skinny.jsonl).
DATA_VALUES = 32


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernel: a tile of ``rows`` × ``columns`` results, whose sums
    ``lanes`` of a warp and ``shares`` of a block's warps have in parts; ``vector`` elements are
    read at once."""

    rows: int
    columns: int
    vector: int
    lanes: int
    shares: int = 1

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} vector={self.vector} lanes={self.lanes}x{self.shares}"

    @property
    def values(self) -> int:
        """Results of a thread."""
        return self.rows * self.columns

    @property
    def slices(self) -> int:
        """Threads of a tile."""
        return self.lanes * self.shares

    @property
    def threads(self) -> int:
        """Threads of a block: few, so that a few tiles are many blocks."""
        return WARP * max(WARPS, self.shares)

    @property
    def tiles(self) -> int:
        """Tiles of a block."""
        return self.threads // self.slices

    def whole(self, direction: str) -> bool:
        """Whether a thread's rows are numbers that lie side by side, and are read at once, too."""
        return direction == "backward_filter" and self.rows == self.vector > 1

    def serves(self, direction: str, sizes: tuple[int, int, int], size: int) -> bool:
        """Whether the kernel computes a product of ``sizes``, as ``tiling.sizes`` has them, of
        elements of so many bytes."""
        rows, columns, depth = sizes
        along = [depth if direction == "forward" else columns]
        along += [rows] if self.whole(direction) else []
        vectors = self.vector == 1 or (
            self.vector * size == VECTOR and not any(n % self.vector for n in along)
        )
        wide = self.columns in COLUMNS if direction == "forward" else self.columns == self.vector
        shared = self.shares == 1 or self.lanes >= SHARING_LANES
        known = self.rows in ROWS and self.lanes in LANES and self.shares in SHARES
        # Several rows of a gradient that are no vector take up to twice as long (note 123).
        one = direction != "backward_filter" or self.rows in (1, self.vector)
        most = DATA_VALUES if direction == "backward_data" else VALUES
        return vectors and wide and shared and known and one and self.values <= most


def configs(direction: str, sizes: tuple[int, int, int], size: int) -> Iterator[Config]:
    """Shapes that serve it, in the widest vectors, none of which has half of its rows, its columns
    or its threads empty; arguments as of ``Config.serves``."""
    count, columns, depth = sizes
    dots, most = direction == "forward", VECTOR // size
    vector = 1 if (depth if dots else columns) % most else most
    step = vector if dots else 1
    for rows, wide, lanes, shares in product(ROWS, COLUMNS if dots else (vector,), LANES, SHARES):
        v = Config(rows, wide, vector, lanes, shares)
        full = rows < 2 * count and wide < 2 * columns and v.slices * step < 2 * depth
        if (full or v.values * v.slices == 1) and v.serves(direction, sizes, size):
            yield v
