"""What a layout costs in shared memory, counted on the CPU: transactions, conflicts, idle lanes.

Shared memory has BANKS banks of words of 32 bits. A warp's instruction goes in slots of 128 bytes:
all lanes of 32-bit words, each half of the lanes of 64 bits, each quarter of 128 bits. A slot takes
a transaction for each different word that its busiest bank is asked for, and one where all its
lanes are idle: that is why Yan et al.'s layout, of which half of the lanes store, halves the
throughput (openCNN, section 4). On Turing 16 load-store units move 64 bytes a cycle, so that a
transaction takes two, and a store two more: ``Turing`` has openCNN's Table 1 to 3 %.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from winolab.gpu.families.fused2d.layouts import (
    PAIRS,
    STATES,
    THREADS,
    Layout,
    layout,
)
from winolab.gpu.params import BANKS

LANES = 32


@dataclass(frozen=True)
class Instructions:
    """Counts over instructions of one kind; bytes are those that active lanes move."""

    instructions: int = 0
    transactions: int = 0
    least: int = 0  # transactions without conflicts, idle slots counted
    idle: int = 0  # lanes
    bytes: int = 0

    @property
    def conflicts(self) -> int:
        """Transactions that bank conflicts add."""
        return self.transactions - self.least

    @property
    def idle_share(self) -> float:
        """The share of lanes that do nothing."""
        return self.idle / (LANES * self.instructions) if self.instructions else 0.0

    def __add__(self, other: Instructions) -> Instructions:
        return Instructions(
            self.instructions + other.instructions,
            self.transactions + other.transactions,
            self.least + other.least,
            self.idle + other.idle,
            self.bytes + other.bytes,
        )


@dataclass(frozen=True)
class Timing:
    """Cycles of an architecture's transactions, and those that a store takes beside."""

    transaction: float
    store: float

    def cycles(self, counted: Instructions, stores: bool) -> float:
        """Cycles of instructions that follow one another."""
        return self.transaction * counted.transactions + self.store * stores * counted.instructions

    def bytes_a_cycle(self, counted: Instructions, stores: bool) -> float:
        """Throughput of instructions that follow one another."""
        return counted.bytes / self.cycles(counted, stores)


# openCNN's Table 1, of an RTX 2080 Ti: LDS 2.11, 4.00, 8.00 cycles of 32, 64, 128 bits; STS 4.06,
# 6.01, 10.00.
TURING = Timing(transaction=2.0, store=2.0)
# An H100's, where sixteen warps fill one another's gaps (experiments/results/shared_memory.jsonl).
HOPPER = Timing(transaction=1.0, store=0.0)


def accesses(words: Sequence[int | None], width: int) -> Instructions:
    """One instruction of a warp: the first word that each lane reads or writes, None of an idle
    one, and how many words a lane has, 1, 2 or 4.

    Raises ValueError for words that an access of that width does not reach.

    >>> accesses([2 * lane for lane in range(32)], 2).conflicts
    0
    >>> accesses([2 * lane for lane in range(32)], 1).conflicts
    1
    """
    if any(word is not None and word % width for word in words):
        raise ValueError(f"a word is no multiple of {width}, to which such accesses are aligned")
    lanes, transactions = LANES // width, 0
    for slot in range(width):
        asked: dict[int, set[int]] = defaultdict(set)
        for word in words[slot * lanes : (slot + 1) * lanes]:
            if word is not None:
                for each in range(word, word + width):
                    asked[each % BANKS].add(each)
        transactions += max(map(len, asked.values()), default=1)
    active = sum(word is not None for word in words)
    return Instructions(1, transactions, width, LANES - active, 4 * width * active)


def stores(of: Layout) -> Instructions:
    """The stores of a warp, of its two states, in all rounds; every warp has states of its own."""
    return _sum(accesses(words, of.width) for _, words in stored(of))


def loads(of: Layout) -> Instructions:
    """The loads of all warps of a state in all rounds, 32 bits each."""
    return _sum(accesses(words, 1) for _, words in loaded(of))


def stored(of: Layout) -> Iterator[tuple[int, list[int | None]]]:
    """Each store of the first warp: its round, and the first word of every lane, of two planes."""
    lanes = of.lanes
    for round_ in range(of.rounds):
        for s, i, v in product(range(lanes.held), range(lanes.m), range(of.vectors)):
            j = of.first(v)
            if of.holds(round_, i, j):
                yield (
                    round_,
                    [
                        lanes.state_of(0, lane, s) * of.plane
                        + of.address(lanes.filter_of(lane, i), lanes.tile_of(lane, j))
                        if of.active(lane, round_)
                        else None
                        for lane in range(LANES)
                    ],
                )


def loaded(of: Layout) -> Iterator[tuple[int, list[int | None]]]:
    """Each load of the first state: its round, and the word of every lane, warp by warp."""
    for round_, warp, e in product(range(of.rounds), range(THREADS // LANES), range(2)):
        threads = range(warp * LANES, (warp + 1) * LANES)
        yield (
            round_,
            [of.address(of.pair_filter(round_, t, e), of.read_tile(round_, t, e)) for t in threads],
        )


@dataclass(frozen=True)
class Cost:
    """A layout's figures for a block: its buffer, its rounds, and both phases of all states."""

    layout: Layout
    stores: Instructions
    loads: Instructions

    @classmethod
    def of(cls, of: Layout) -> Cost:
        """Counted for the states of a block."""
        return cls(of, _times(stores(of), THREADS // LANES), _times(loads(of), STATES))

    @property
    def padding(self) -> int:
        """Bytes of a buffer that nobody uses."""
        return 4 * STATES * (self.layout.plane - PAIRS)

    def cycles(self, timing: Timing = TURING) -> float:
        """Cycles of both phases, were nothing between them."""
        return timing.cycles(self.stores, True) + timing.cycles(self.loads, False)


@dataclass(frozen=True)
class Family:
    """Layouts without padding: a state's 512 floats of a round are 16 rows of 32. ``row``: the
    digits, of a filter and a tile, that say which; ``place``: the place in it, before each row is
    turned by a multiple of each of its digits."""

    layout: Layout
    row: Mapping[str, tuple[int, Callable[[int, int], int]]]  # its size, and the digit
    place: Callable[[int, int], int]

    def turned(self, turns: Mapping[str, int]) -> Layout:
        """The layout whose rows are turned by so many words for each digit."""

        def address(m: int, tile: int) -> int:
            row, place = 0, self.place(m, tile)
            for name, (size, digit) in self.row.items():
                row = row * size + digit(m, tile)
                place += turns[name] * digit(m, tile)
            return row * BANKS + place % BANKS

        text = ", ".join(f"{name} {turns[name]}" for name in self.row)
        return replace(self.layout, name=f"{self.layout.name}: {text}", address=address)

    def search(self, turns: Sequence[int]) -> list[dict[str, int]]:
        """The turns, of ``turns`` for each digit, with which nothing stored or loaded conflicts.

        All lanes are at work there, with words of their own, and so ask for every bank once.
        Raises ValueError for turns by which a store's words are no longer aligned.
        """
        if any(turn % self.layout.width for turn in turns):
            raise ValueError(f"stores have {self.layout.width} words: turns are multiples of it")
        flat = self.turned(dict.fromkeys(self.row, 0))
        asked = [(words, flat.width) for _, words in stored(flat)]
        asked += [(words, 1) for _, words in loaded(flat)]
        grid = np.array(list(product(turns, repeat=len(self.row))))
        free = np.ones(len(grid), bool)
        for words, width in asked:
            row, place = np.divmod(np.array(words, int) % flat.plane, BANKS)
            digits = np.array(np.unravel_index(row, [size for size, _ in self.row.values()]))
            banks = (place + grid @ digits) % BANKS // width
            slots = np.bitwise_or.reduce(1 << banks.reshape(len(grid), width, -1), axis=-1)
            free &= (slots == (1 << BANKS // width) - 1).all(axis=-1)
        return [dict(zip(self.row, map(int, found), strict=True)) for found in grid[free]]


def families(filters: int) -> dict[str, Family]:
    """Those of openCNN's compact layout, 64-bit stores of a cell's first and third, second and
    fourth tile, and of ``wide``, 128-bit stores of a cell."""
    halves = {"i": (2, lambda m, tile: m % 2)}
    return {
        "compact": Family(
            layout("compact", filters),
            {
                **halves,
                "row": (4, lambda m, tile: m % 32 // 4 % 4),
                "matrix": (2, lambda m, tile: tile % 2),
            },
            lambda m, tile: m % 32 // 16 * 16 + tile // 4 * 2 + tile % 4 // 2,
        ),
        "wide": Family(
            layout("wide", filters),
            {
                **halves,
                "half": (2, lambda m, tile: m % 32 // 16),
                "lanes": (2, lambda m, tile: tile // 8 % 2),
                "far": (2, lambda m, tile: tile // 16),
            },
            lambda m, tile: m % 32 // 4 % 4 * 8 + tile // 4 % 2 * 4 + tile % 4,
        ),
    }


def _sum(found: Iterable[Instructions]) -> Instructions:
    return sum(found, Instructions())


def _times(counted: Instructions, times: int) -> Instructions:
    return _sum([counted] * times)
