"""Im2col-Winograd's boundary treatment: a width cut into segments without redundant work."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.algorithm import Tile

DIRECT = Tile(1, 1)


@dataclass(frozen=True)
class Segment:
    """``tiles`` tiles side by side along one output dimension, from output ``start`` on."""

    start: int
    tiles: int
    tile: Tile

    @property
    def outputs(self) -> int:
        return self.tiles * self.tile.n


def segments(width: int, tile: Tile) -> tuple[Segment, ...]:
    """Cut ``width`` outputs into exactly covered segments (Im2col-Winograd, Figure 7).

    ``tile`` takes the largest part that n divides, the smaller kernel of the family for r takes
    the largest part of the rest, and direct convolution the remainder: no output twice, none
    computed in vain.
    """
    cut, start = [], 0
    for t in (*family(tile), DIRECT):
        tiles = (width - start) // t.n
        if tiles:
            cut.append(Segment(start, tiles, t))
            start += tiles * t.n
    return tuple(cut)


def family(tile: Tile) -> tuple[Tile, ...]:
    """``tile`` and the smaller tiles that its boundary falls back to: α = 16, then 8, then 4."""
    smaller = [a for a in (16, 8, 4) if tile.r < a < tile.inputs]
    return (tile, *(Tile(a - tile.r + 1, tile.r) for a in smaller))


def masked(width: int, tile: Tile) -> tuple[Segment, ...]:
    """One segment of ``tile`` that covers ``width``; what its last tile computes beyond is cut."""
    return (Segment(0, -(-width // tile.n), tile),) if width else ()
