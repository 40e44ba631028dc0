"""Layouts of the output transform's buffer: nothing is lost or conflicts, sizes are the paper's."""

from __future__ import annotations

from collections import Counter

import pytest

from winolab.gpu.families.fused2d.layouts import (
    PAIRS,
    THREADS,
    Expression,
    Layout,
    figure4,
    layout,
    layouts,
)

every_layout = pytest.mark.parametrize(
    "made",
    [v for filters in (64, 32) for v in layouts(filters)],
    ids=lambda v: f"{v.name}{v.filters}",
)


def vectors(made: Layout, round: int, lane: int):
    """(i, j, address) of the vectors that a lane of the first warp stores in a round."""
    lanes = made.lanes
    for s in range(lanes.held):
        for i in range(lanes.m):
            for j in map(made.first, range(made.vectors)):
                if made.holds(round, i, j) and made.active(lane, round):
                    at = made.address(lanes.filter_of(lane, i), lanes.tile_of(lane, j))
                    yield i, j, lanes.state_of(0, lane, s) * made.plane + at


def passes(addresses: list[int], width: int) -> int:
    """Times that the busiest of 32 banks is asked by one access of so many words a lane."""
    banks = Counter((a + k) % 32 for a in set(addresses) for k in range(width))
    return max(banks.values())


@every_layout
def test_what_a_round_puts_is_what_it_reads(made) -> None:
    done = set()
    for round in range(made.rounds):
        put = {}
        for lane in range(32):
            for i, j, first in vectors(made, round, lane):
                assert first % made.width == 0
                for k in range(made.width):
                    m, tile = (
                        made.lanes.filter_of(lane, i),
                        made.lanes.tile_of(lane, j + k * made.step),
                    )
                    state, at = divmod(first + k, made.plane)
                    assert made.address(m, tile) == at
                    assert put.setdefault((state, at), (m, tile)) == (m, tile)
        pairs = [
            (made.pair_filter(round, t, e), made.read_tile(round, t, e))
            for t in range(THREADS)
            for e in (0, 1)
        ]
        read = {(s, made.address(*pair)): pair for pair in pairs for s in (0, 1)}
        assert read == put
        assert len(put) == 2 * PAIRS
        done |= set(pairs)
    assert len(done) == made.filters * 32


@every_layout
def test_no_access_conflicts(made) -> None:
    for round in range(made.rounds):
        lanes = [list(vectors(made, round, lane)) for lane in range(32)]
        for same in zip(*filter(None, lanes), strict=True):
            least = len(same) * made.width / 32
            assert passes([first for *_, first in same], made.width) == max(1, least)
        for t in range(0, THREADS, 32):
            for e in (0, 1):
                threads = range(t, t + 32)
                read = [
                    made.address(made.pair_filter(round, k, e), made.read_tile(round, k, e))
                    for k in threads
                ]
                assert passes(read, 1) == 1


@every_layout
def test_the_two_pairs_of_a_thread(made) -> None:
    if made.along:
        for round in range(made.rounds):
            for t in range(THREADS):
                m, tile = (
                    [of(round, t, e) for e in (0, 1)] for of in (made.pair_filter, made.pair_tile)
                )
                moved = (m[1] - m[0], tile[1] - tile[0])
                assert moved == ((0, 1) if made.along == "tiles" else (1, 0))


def test_what_is_shuffled() -> None:
    """openCNN, Figure 11: of four neighbouring tiles an even thread reads the first and the third,
    an odd one the second and the fourth; each stores neighbours."""
    for made in (v for filters in (64, 32) for v in layouts(filters)):
        assert made.shuffled == (made.name == "shuffled")
        for round in range(made.rounds):
            for t in range(0, THREADS, 2):
                read, own = (
                    [[of(round, t + odd, e) for e in (0, 1)] for odd in (0, 1)]
                    for of in (made.read_tile, made.pair_tile)
                )
                if made.shuffled:
                    first = own[0][0]
                    assert read == [[first, first + 2], [first + 1, first + 3]]
                    (read[0][1], read[1][0]) = (read[1][0], read[0][1])
                assert read == own


def test_the_papers_sizes_and_lanes() -> None:
    """openCNN, sections 3 and 4.1: 40 KB and half of the lanes; 32 KB without padding."""
    sizes = {v.name: v.bytes for v in layouts(64)}
    assert sizes["yan"] == sizes["sts64"] == 40 << 10
    assert sizes["compact"] == 32 << 10 < sizes["sts64_final"] < 34 << 10
    for name, lanes in (("yan", 16), ("sts64", 32)):
        made = layout(name, 64)
        assert {sum(bool(made.active(lane, r)) for lane in range(32)) for r in range(4)} == {lanes}


def test_figure_4_and_8() -> None:
    """Lane 16 has inputs 8 to 11 and 24 to 27, filters 0 to 3 and 32 to 35; rows of lanes of the
    compact layout's first, third and seventh 128 bytes."""
    lanes = figure4(64)
    assert [lanes.tile_of(16, j) for j in range(8)] == [8, 9, 10, 11, 24, 25, 26, 27]
    assert [lanes.filter_of(16, i) for i in range(8)] == [0, 1, 2, 3, 32, 33, 34, 35]
    made, rows = layout("compact", 64), {}
    for lane in range(32):
        for i, _, first in vectors(made, 0, lane):
            if i == 0 and first < made.plane:
                rows.setdefault(first // 32, {})[first % 32 // 2] = lane
    shown = {row: [cells[at] for at in range(16)] for row, cells in rows.items()}
    assert shown[0] == shown[1] == [0, 1, 16, 17, 0, 1, 16, 17, 8, 9, 24, 25, 8, 9, 24, 25]
    assert shown[2] == [26, 27, 2, 3, 18, 19, 2, 3, 18, 19, 10, 11, 26, 27, 10, 11]
    assert shown[6] == [30, 31, 14, 15, 30, 31, 6, 7, 22, 23, 6, 7, 22, 23, 14, 15]


def test_an_expression_prints_what_it_computes() -> None:
    of = figure4(64).filter_of
    text = str(of(Expression("lane"), 5))
    assert text == "(((((lane % 16) / 2) * 4) + 1) + 32)"
    assert eval(text.replace("/", "//"), {"lane": 9}) == of(9, 5)


def test_a_layout_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no layout 'best': choose one of channels, yan"):
        layout("best", 64)
