"""Tiles of nested Winograd: which serve so many taps, and what they multiply."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

from winolab.algorithm import Tile

Pair = tuple[Tile, Tile]  # along the height, along the width

MOST_ALPHA = 10  # of one dimension, where nobody names more
MOST_STATES = 64  # of both, where nobody names more
IN_REGISTERS = 72  # of two channels half transformed, in a thread's registers
MOST_NAMED = 24  # of one dimension: its columns are exchanged through shared memory
# Algorithms of more states than n + r - 1, of which the gain is small (docs/notes/041).
MODULI = {
    Tile(6, 3, 10): "0,1,-1,inf,x^2+x+1,x^2-x+1",
    Tile(6, 3, 9): "0,3/4,-3/4,4/3,-4/3,inf,x^2+1",
    Tile(7, 3, 10): "1/3,-1/3,1,-1,8/5,-8/5,inf,x^2+1",
    Tile(6, 5, 12): "0,3/4,-3/4,4/3,-4/3,inf,x^2+x+1,x^2-x+1",
    Tile(8, 9, 19): "0,1/2,-1/2,3/4,-3/4,5/4,-5/4,2,-2,inf,x^2+1,x^2+x+1,x^2-x+1",
}


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


def fits(tile: Tile, taps: int) -> bool:
    """Whether a tile serves so many taps, whatever its states: in one piece, or in pieces that
    begin whole tiles apart."""
    least = 2 <= tile.r <= taps and tile.n >= 2 and tile.alpha <= MOST_NAMED
    return least and (tile.r == taps or tile.r % tile.n == 0)


def in_registers(tiles: Pair) -> bool:
    """Whether a thread transforms two channels of a tile, by itself."""
    return tiles[0].alpha * tiles[1].inputs <= IN_REGISTERS


def multiplications(tiles: Sequence[Tile], filters: tuple[int, int]) -> float:
    """Multiplications of an output and an input channel, where tiles divide the outputs; a piece
    without its last tap has none at infinity."""
    return math.prod(
        (t.alpha * pieces(t, taps) - short(t, taps)) / t.n
        for t, taps in zip(tiles, filters, strict=True)
    )


def moduli(filters: tuple[int, int]) -> Iterator[tuple[Pair, str]]:
    """Tiles of more states than they have inputs, along both dimensions or along that which has
    them, and their points."""
    for tile, points in MODULI.items():
        first, second = ((tile,) if taps == tile.r else serving(taps) for taps in filters)
        for a, b in product(first, second):
            if tile in (a, b):
                yield (a, b), points


def pairs(filters: tuple[int, int]) -> Iterator[Pair]:
    """Tiles of both dimensions, the fewest multiplications first; of those that have as many what
    takes fewer registers to transform a filter."""
    every = product(*map(serving, filters))
    both = [(a, b) for a, b in every if a.alpha * b.alpha <= MOST_STATES]
    yield from sorted(both, key=lambda t: (multiplications(t, filters), t[0].alpha * t[1].r))
