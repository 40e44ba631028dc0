"""Tiles of nested Winograd: which serve so many taps, and what they multiply."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from winolab.algorithm import Tile

Pair = tuple[Tile, Tile]  # along the height, along the width

MOST_ALPHA = 10  # of one dimension
MOST_STATES = 64  # of both: two channels of 8 × 8 pixels fill a thread's registers


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
