"""openCNN's Figures 4 to 14 as data: which lane of a warp has, stores, reads or writes what.

Everything is read from the layouts that the kernel's indexing is printed from; Figure 13's order of
64-bit loads, which the authors discarded, is one of a family that is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, permutations

from winolab.gpu.families.fused2d.banks import LANES, Instructions, accesses, loaded, stored
from winolab.gpu.families.fused2d.layouts import STATES, THREADS, TILES, Layout, figure4, layout

FILTERS = 64  # of a block
LINE = 128  # bytes of a transaction
PAD = -1

Grid = list[list[int]]  # lanes, or PAD


def lanes() -> Grid:
    """Figure 4: the lane that has each cell of 4 × 4, a row four tiles, a column four filters."""
    made, found = figure4(FILTERS), [[PAD] * (FILTERS // 4) for _ in range(TILES // 4)]
    for lane in range(LANES):
        for i in range(0, made.m, 4):
            for j in (0, 4):
                found[made.tile_of(lane, j) // 4][made.filter_of(lane, i) // 4] = lane
    return found


def first_round(of: Layout) -> Grid:
    """Figure 5, left: how many of the 16 sums of each cell of ``lanes()`` are stored in the first
    round."""
    found = [[0] * (FILTERS // 4) for _ in range(TILES // 4)]
    for lane in range(LANES):
        for i in range(of.lanes.m):
            for j in map(of.first, range(of.vectors)):
                if of.active(lane, 0) and of.holds(0, i, j):
                    for k in range(of.width):
                        tile = of.lanes.tile_of(lane, j + k * of.step)
                        found[tile // 4][of.lanes.filter_of(lane, i) // 4] += 1
    return found


def buffer(of: Layout) -> Grid:
    """Figures 5, right, to 8: the lane that stores each word of a state's buffer in the first
    round, in rows of 128 bytes."""
    found = [[PAD] * LANES for _ in range(-(-of.plane // LANES))]
    for round_, words in stored(of):
        for lane, first in enumerate(words):
            if round_ == 0 and first is not None and first < of.plane:
                for word in range(first, first + of.width):
                    found[word // LANES][word % LANES] = lane
    return found


@dataclass(frozen=True)
class Reading:
    """What a warp reads of a state at once: its rows of 128 bytes, the lane and the tile of each
    word, and what the instructions cost."""

    lanes: Grid
    tiles: Grid
    cost: Instructions


def readings(of: Layout) -> Reading:
    """Figures 9, 10 and 12: 32-bit loads of the first warp's two pairs."""
    words = [each for _, each in islice(loaded(of), 2)]
    cost = sum((accesses(each, 1) for each in words), Instructions())
    lanes_, tiles = [], []
    for e, each in enumerate(words):
        at = {word % LANES: lane for lane, word in enumerate(each) if word is not None}
        lanes_.append([at[bank] for bank in range(LANES)])
        tiles.append([of.read_tile(0, at[bank], e) for bank in range(LANES)])
    return Reading(lanes_, tiles, cost)


def shuffled(of: Layout) -> list[tuple[list[int], list[int]]]:
    """Figure 11: tiles of each lane's two results, as it reads and as it stores them."""
    return [
        ([of.read_tile(0, lane, e) for e in (0, 1)], [of.pair_tile(0, lane, e) for e in (0, 1)])
        for lane in range(LANES)
    ]


@cache
def wide_orders() -> dict[tuple[int, ...], Instructions]:
    """Orders of 64-bit loads of two rows of 128 bytes, by a lane's bits, and what each costs.

    An order says which bit of the lane is the row, the half of it, and the place there: row, half,
    three bits of the place, the lowest last.
    """
    return {order: accesses(wide_words(order), 2) for order in permutations(range(5))}


def wide_words(order: Sequence[int]) -> list[int]:
    """The first word that each lane loads."""
    row, half, *place = order
    found = []
    for lane in range(LANES):
        at = sum((lane >> bit & 1) << k for k, bit in enumerate(reversed(place)))
        found.append((lane >> row & 1) * LANES + (lane >> half & 1) * 16 + 2 * at)
    return found


FIGURE13 = (
    3,
    4,
    2,
    1,
    0,
)  # eight lanes a row, then the other row; the other half of the warp beside


def free_orders() -> list[tuple[int, ...]]:
    """Orders of 64-bit loads without a conflict."""
    return [order for order, cost in wide_orders().items() if not cost.conflicts]


@dataclass(frozen=True)
class Stores:
    """What a warp writes to memory by an instruction: bytes, and lines of 128 bytes of either
    half-warp."""

    bytes: int
    lines: tuple[int, ...]
    lanes: Grid  # lane of each word, a line a row


def stores_of_y(of: Layout) -> Stores:
    """Figure 14: 64-bit stores of neighbouring tiles, whose 32 lie together in CHWN."""
    found: dict[int, list[int]] = {}
    lines: list[set[int]] = [set(), set()]
    for lane in range(LANES):
        m = of.pair_filter(0, lane, 0)
        for e in (0, 1):
            line = found.setdefault(m, [PAD] * (LINE // 4))
            line[of.pair_tile(0, lane, e)] = lane
        lines[lane // 16].add(m)
    return Stores(8 * LANES, tuple(map(len, lines)), [found[m] for m in sorted(found)])


def round_bytes(of: Layout) -> int:
    """Bytes that go through shared memory in a round."""
    return 4 * STATES * FILTERS * TILES // of.rounds


def registers() -> int:
    """Bytes of a block's sums."""
    made = figure4(FILTERS)
    return 4 * THREADS * made.held * made.m * 8


def named(name: str) -> Layout:
    """A layout of blocks of 64 filters."""
    return layout(name, FILTERS)
