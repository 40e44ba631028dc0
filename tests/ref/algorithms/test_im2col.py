import pytest
from hypothesis import given
from hypothesis import strategies as st

from winolab.algorithm import Tile
from winolab.ref.algorithms.im2col import DIRECT, family, masked, segments

TILES = st.builds(Tile, st.integers(1, 16), st.integers(1, 16))


def test_figure_7_of_im2col_winograd():
    """Width 3: Γ8(6,3) takes the largest part 6 divides, Γ4(2,3) the next, direct the rest."""
    cut = [(s.start, s.outputs, str(s.tile)) for s in segments(23, Tile(6, 3))]
    assert cut == [(0, 18, "F(6,3)"), (18, 4, "F(2,3)"), (22, 1, "F(1,1)")]


@pytest.mark.parametrize(
    ("tile", "expected"),
    [
        (Tile(8, 9), ["F(8,9)"]),
        (Tile(10, 7), ["F(10,7)", "F(2,7)"]),
        (Tile(6, 3), ["F(6,3)", "F(2,3)"]),
        (Tile(2, 3), ["F(2,3)"]),
    ],
)
def test_family(tile, expected):
    assert [str(t) for t in family(tile)] == expected


@given(st.integers(0, 500), TILES)
def test_segments_cover_every_output_once(width, tile):
    position = 0
    for s in segments(width, tile):
        assert s.start == position
        assert s.tiles >= 1
        position += s.outputs
    assert position == width


@given(st.integers(0, 500), TILES)
def test_a_masked_segment_covers_with_one_last_tile(width, tile):
    cut = masked(width, tile)
    assert sum(s.tiles for s in cut) == -(-width // tile.n)
    assert masked(width, DIRECT) == (() if not width else masked(width, DIRECT))
