"""Tiles of nested Winograd: which serve a filter, and how many a call has."""

from __future__ import annotations

import pytest

from winolab.algorithm import Tile
from winolab.gpu.families.nested.tiles import grid, pieces, serving, short


def test_a_tile_serves_filters_whose_pieces_begin_whole_tiles_apart() -> None:
    """So that pieces share the transformed input; a filter in one piece may have any tile."""
    for taps in (3, 5, 7):
        for tile in serving(taps):
            assert tile.r == taps or (tile.r < taps and tile.r % tile.n == 0), (taps, tile)
    assert {Tile(4, 3), Tile(2, 3), Tile(3, 3)} <= set(serving(3))
    assert Tile(3, 3) in serving(7)
    assert Tile(2, 4) in serving(7)
    assert not {Tile(4, 3), Tile(4, 2)} & set(serving(7))


@pytest.mark.parametrize(
    ("tile", "taps", "outputs", "expected"),
    [
        (Tile(4, 3), 3, 12, (3, 3)),  # one piece: as many tiles of the input as of the outputs
        (Tile(3, 3), 7, 12, (4, 6)),  # three pieces, each a tile further
        (Tile(2, 4), 7, 11, (6, 8)),  # the second begins two tiles behind the first
    ],
)
def test_pieces_share_the_tiles_of_the_input(tile, taps, outputs, expected) -> None:
    assert grid(tile, taps, outputs) == expected
    first, all_of = expected
    reached = tile.r * (pieces(tile, taps) - 1) // tile.n  # tiles before the last piece's first
    assert all_of == first + reached


def test_the_last_piece_may_lack_taps() -> None:
    assert (pieces(Tile(3, 3), 7), short(Tile(3, 3), 7)) == (3, True)
    assert (pieces(Tile(3, 3), 6), short(Tile(3, 3), 6)) == (2, False)
