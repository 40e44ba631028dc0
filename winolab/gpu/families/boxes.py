"""Boxes of tiles or positions that blocks of products take, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


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
