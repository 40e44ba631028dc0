"""What nested Winograd on Tensor Cores is cut into: tiles of outputs, boxes of these a block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from winolab.algorithm import Tile
from winolab.options import KernelConfig

Pair = tuple[Tile, Tile]  # along the height, along the width

BN = 128  # tiles of a block, at most: nested/products.cuh
MOST_ALPHA = 10  # of one dimension
MOST_STATES = 64  # of both: two channels of 8 × 8 pixels fill a thread's registers
MOST_WIDTH = 256  # output channels of a block, whose sums fill the registers
WIDTHS = (32, 48, 64, 96, 128)  # of a partial sum: products that emit.wgmma offers
UNIT = 16  # output channels that blocks are filled up to
ROW_BYTES, BARRIERS = 128, 16  # of a tile in a stage of 32 channels; of a stage's barriers
MORE = 4  # times as many blocks of output channels as there must be, at most


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


def pieces(tile: Tile, taps: int) -> int:
    """Pieces of r taps that a filter of so many is cut into, along one dimension."""
    return -(-taps // tile.r)


def short(tile: Tile, taps: int) -> bool:
    """Whether the last of these pieces lacks its last tap."""
    return taps % tile.r > 0


def grid(tile: Tile, taps: int, outputs: int) -> tuple[int, int]:
    """Tiles of the outputs along one dimension, and of the input, which all pieces share."""
    tiles = -(-outputs // tile.n)
    return tiles, tiles + (pieces(tile, taps) - 1) * (tile.r // tile.n)


@lru_cache(maxsize=1024)
def serving(taps: int) -> tuple[Tile, ...]:
    """Tiles along one dimension of so many taps: of one piece, or of pieces that begin whole tiles
    apart, so that they share the transformed input."""
    found = []
    for r in range(2, min(taps, MOST_ALPHA - 1) + 1):
        for n in range(2, MOST_ALPHA + 2 - r):
            tile = Tile(n, r)
            if r == taps or r % n == 0:
                found.append(tile)
    return tuple(found)


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


def multiplications(tiles: Pair, filters: tuple[int, int]) -> float:
    """Multiplications of an output and an input channel, where tiles divide the outputs; a piece
    without its last tap has none at infinity."""
    return math.prod(
        (t.alpha * pieces(t, taps) - short(t, taps)) / t.n
        for t, taps in zip(tiles, filters, strict=True)
    )


def pairs(filters: tuple[int, int]) -> Iterator[Pair]:
    """Tiles of both dimensions, the fewest multiplications first; of those that have as many what
    takes fewer registers to transform a filter."""
    every = product(*map(serving, filters))
    both = [(a, b) for a, b in every if a.alpha * b.alpha <= MOST_STATES]
    yield from sorted(both, key=lambda t: (multiplications(t, filters), t[0].alpha * t[1].r))
