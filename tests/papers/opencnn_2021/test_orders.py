"""openCNN's Figures 4 to 14, their numbers as printed, and what a search over layouts finds."""

from __future__ import annotations

import pytest

from papers.opencnn_2021.layouts import by_banks
from papers.opencnn_2021.orders import (
    FIGURE13,
    LANES,
    PAD,
    buffer,
    first_round,
    free_orders,
    lanes,
    named,
    readings,
    registers,
    round_bytes,
    shuffled,
    stores_of_y,
    wide_orders,
    wide_words,
)
from papers.opencnn_2021.search import found, least, matter
from winolab.device import H100, datasheet
from winolab.gpu.families.fused2d.banks import HOPPER, TURING, Cost, Instructions

# Cells of 64 bits, as the paper prints them; Figure 6's fifth row has a misprint, 2 for 23.
FIGURES = {
    "sts64": """
        0 1 16 17 0 1 16 17 8 9 24 25 8 9 24 25
        . . 2 3 18 19 2 3 . . 10 11 26 27 10 11
        18 19 . . 4 5 20 21 26 27 . . 12 13 28 29
        4 5 20 21 . . 6 7 12 13 28 29 . . 14 15
        22 23 6 7 22 23 . . 30 31 14 15 30 31 . .
        0 1 16 17 0 1 16 17 8 9 24 25 8 9 24 25""",
    "sts64_final": """
        0 1 16 17 0 1 16 17 8 9 24 25 8 9 24 25
        0 1 16 17 0 1 16 17 8 9 24 25 8 9 24 25
        . . 2 3 18 19 2 3 18 19 10 11 26 27 10 11
        26 27 2 3 18 19 2 3 18 19 10 11 26 27 10 11
        26 27 . . 4 5 20 21 4 5 20 21 12 13 28 29
        12 13 28 29 4 5 20 21 4 5 20 21 12 13 28 29
        12 13 28 29 . . 6 7 22 23 6 7 22 23 14 15
        30 31 14 15 30 31 6 7 22 23 6 7 22 23 14 15""",
    "compact": """
        0 1 16 17 0 1 16 17 8 9 24 25 8 9 24 25
        0 1 16 17 0 1 16 17 8 9 24 25 8 9 24 25
        26 27 2 3 18 19 2 3 18 19 10 11 26 27 10 11
        26 27 2 3 18 19 2 3 18 19 10 11 26 27 10 11
        12 13 28 29 4 5 20 21 4 5 20 21 12 13 28 29
        12 13 28 29 4 5 20 21 4 5 20 21 12 13 28 29
        30 31 14 15 30 31 6 7 22 23 6 7 22 23 14 15
        30 31 14 15 30 31 6 7 22 23 6 7 22 23 14 15""",
}


def test_figure_4() -> None:
    even, odd = [*range(0, 16, 2)] * 2, [*range(1, 16, 2)] * 2
    quarter = [even, odd, [v + 16 for v in even], [v + 16 for v in odd]]
    assert lanes() == quarter * 2


def test_figure_5_has_lanes_0_to_7_and_16_to_23_first() -> None:
    """All sums of 16 filters; 64-bit stores take half of the sums of 32."""
    first = first_round(named("yan"))
    assert first == [[16] * 4 + [0] * 12] * 8
    at_work = {lane for row in lanes() for lane in row[:4]}
    assert at_work == {*range(8), *range(16, 24)}
    assert first_round(named("sts64")) == [[8] * 8 + [0] * 8] * 8


@pytest.mark.parametrize("name", FIGURES)
def test_figures_6_to_8(name) -> None:
    printed = [line.split() for line in FIGURES[name].split("\n") if line]
    rows = [[*row[::2]] for row in buffer(named(name))[: len(printed)]]
    assert rows == [[PAD if v == "." else int(v) for v in line] for line in printed]


def test_figures_9_to_12() -> None:
    """Lanes in order on both rows; without the swap a lane has the first and third tile of a cell,
    or the second and fourth, and shuffles; with it neighbours."""
    plain, swapped = readings(named("shuffled")), readings(named("sts64"))
    for read in (plain, swapped):
        assert read.lanes == [[*range(LANES)]] * 2
        assert read.cost == Instructions(2, 2, 2, 0, 256)
    assert plain.tiles[0][:8] == [0, 1, 4, 5, 8, 9, 12, 13]
    assert plain.tiles[1][:8] == [2, 3, 6, 7, 10, 11, 14, 15]
    assert swapped.tiles[0][:16] == [*range(0, 32, 2)]
    assert swapped.tiles[1][:16] == [*range(1, 32, 2)]
    made = shuffled(named("shuffled"))
    assert made[:2] == [([0, 2], [0, 1]), ([1, 3], [2, 3])]
    assert all(read == own for read, own in shuffled(named("sts64")))


def test_figure_13_conflicts_and_figure_14_does_not() -> None:
    words = wide_words(FIGURE13)
    assert words[:9] == [0, 2, 4, 6, 8, 10, 12, 14, 32]
    assert words[16] == 16
    assert wide_orders()[FIGURE13] == Instructions(1, 4, 2, 0, 256)
    assert (len(free_orders()), len(wide_orders())) == (24, 120)
    # Those whose last bit of a lane is the row: a half-warp reads a row.
    assert all(order[0] == 4 for order in free_orders())
    made = stores_of_y(named("sts64"))
    assert (made.bytes, made.lines) == (256, (1, 1))
    assert made.lanes == [[at // 2 + half for at in range(32)] for half in (0, 16)]


def test_bytes_of_registers_and_rounds() -> None:
    assert registers() == 128 << 10
    for name in ("yan", "sts64", "sts64_final", "compact", "wide", "shuffled"):
        assert (named(name).rounds, round_bytes(named(name))) == (4, 32 << 10)


def test_what_the_search_finds() -> None:
    """Compact layouts: any turn of the other digits, an odd multiple of four words of the rows'.
    Stores of 128 bits: nothing can be faster by the model than what ours takes."""
    tried, free = found("compact")
    assert (tried, len(free)) == (16**3, 1024)
    assert matter(free) == {"row": [(4,), (12,), (20,), (28,)]}
    tried, free = found("wide")
    assert (tried, len(free)) == (8**4, 256)
    assert matter(free) == {"lanes, far": [(8, 16), (16, 8), (16, 24), (24, 16)]}
    cycles = {name: Cost.of(named(name)).cycles() for name in ("yan", "sts64", "compact", "wide")}
    assert cycles == {"yan": 7168, "sts64": 5120, "compact": 5120, "wide": 4608}
    assert least() == 4608


def test_what_banks_alone_gain() -> None:
    """Turing has 64 FFMAs a cycle, 32,768 cycles of products on 64 channels; an H100 128, and a
    transaction a cycle."""
    assert by_banks(64, datasheet("rtx2080ti"), TURING) == (32768 + 7168) / (32768 + 5120)
    assert by_banks(64, H100, HOPPER) == (16384 + 3072) / (16384 + 2048)
