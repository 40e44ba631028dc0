"""Boxes of tiles or positions that blocks of products take, how many there are, and their lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache

from winolab.gpu.params import LINE


@dataclass(frozen=True)
class Box:
    """Tiles of a block: neighbours of a row, rows, images; and blocks of them along each."""

    width: int
    height: int
    images: int
    blocks_width: int
    blocks_height: int
    blocks_images: int

    @property
    def blocks(self) -> int:
        """Blocks of all tiles."""
        return self.blocks_width * self.blocks_height * self.blocks_images

    @property
    def tiles(self) -> int:
        """Tiles of a box."""
        return self.width * self.height * self.images


@lru_cache(maxsize=4096)
def box(
    images: int,
    height: int,
    width: int,
    most: int,
    more: int = 0,
    longest: tuple[int, int] = (256, 256),
) -> Box:
    """The box that takes the fewest blocks of ``most`` tiles, ``more`` a row than it has, at most
    ``longest`` along height and width; of these the longest rows."""
    found = []
    for wide in _parts(width, min(most - more, longest[1])):
        for high in _parts(height, min(most, longest[0])):
            if (together := min(most // ((wide + more) * high), images)) > 0:
                counts = -(-width // wide), -(-height // high), -(-images // together)
                found.append(Box(wide, high, together, *counts))
    return min(found, key=lambda b: (b.blocks, -b.width, -b.height))


def _parts(size: int, most: int) -> list[int]:
    """Lengths up to ``most`` of the longest of some number of parts, as equal as they can be."""
    return [n for n in range(min(size, most), 0, -1) if -(-size // -(-size // n)) == n]


@cache
def lines(channels: int, askew: float) -> float:
    """What a copy of 64 channels in 16 bits costs by the lines of memory that it touches, where
    pixels have so many channels; ``askew``: of a line that is touched in vain."""
    size, steps = 2 * channels, -(-channels // 64)
    places = range(0, math.lcm(size, LINE), size)  # of pixels
    parts = [(at + s, at + min(s + LINE, size)) for at in places for s in range(0, size, LINE)]
    touched = sum((end - 1) // LINE - begin // LINE + 1 for begin, end in parts)
    return 1 + askew * (touched / (len(places) * steps) - 1)
