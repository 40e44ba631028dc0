"""Layouts of the output transform's buffer, as data: which number goes where in shared memory.

A block's sums lie in the registers of 256 threads and go through shared memory in rounds, each as
many pairs of a filter and a tile as there are threads, twice, in all 16 states. A layout is a few
small functions of integers: run on integers they are a model of the kernel, run on ``Expression``
they print the kernel's own indexing. openCNN's Figures 4 to 14 (paper, section 4.1) are four of
them; NHWC has one of its own. Nothing here needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Index = Any  # an integer, or an Expression
STATES, THREADS, PAIRS, TILES = 16, 256, 512, 32  # PAIRS of a round


@dataclass(frozen=True)
class Expression:
    """An expression of C++ over integers that are not negative.

    >>> print((Expression("lane") // 2 + 3) * 4)
    (((lane / 2) + 3) * 4)
    """

    text: str

    def _with(self, sign: str, other: Index) -> Expression:
        return Expression(f"({self} {sign} {other})")

    def __add__(self, other: Index) -> Expression:
        return self if isinstance(other, int) and other == 0 else self._with("+", other)

    def __mul__(self, other: Index) -> Expression:
        return self if isinstance(other, int) and other == 1 else self._with("*", other)

    def __floordiv__(self, other: Index) -> Expression:
        return self._with("/", other)

    def __mod__(self, other: Index) -> Expression:
        return self._with("%", other)

    def __radd__(self, other: int) -> Expression:
        return self + other

    def __rmul__(self, other: int) -> Expression:
        return self * other

    def __str__(self) -> str:
        return self.text


def equal(a: Index, b: Index) -> Index:
    """Whether two numbers are equal."""
    return Expression(f"({a} == {b})") if isinstance(a, Expression) else a == b


@dataclass(frozen=True)
class Lanes:
    """How the sums of a block lie over its eight warps: of 16 states, ``filters`` and 32 tiles.

    ``m`` filters × eight tiles of ``held`` states a lane. ``filter_of(lane, i)`` and
    ``tile_of(lane, j)`` are those of its i-th row and j-th column, ``state_of(warp, lane, s)`` its
    s-th state.
    """

    m: int
    held: int
    filter_of: Callable[[Index, Index], Index]
    tile_of: Callable[[Index, Index], Index]
    state_of: Callable[[Index, Index, Index], Index]


def figure4(filters: int) -> Lanes:
    """openCNN's Figure 4: a warp has two states, a lane cells of 4 × 4 in both."""
    return Lanes(
        filters // 8,
        2,
        lambda lane, i: lane % 16 // 2 * 4 + i % 4 + i // 4 * 32,
        lambda lane, j: (lane % 2 + lane // 16 * 2) * 4 + j % 4 + j // 4 * 16,
        lambda warp, lane, s: warp * 2 + s,
    )


def halves(filters: int) -> Lanes:
    """Half a warp a state: twice as many filters a lane, which then loads a quarter less for as
    many products. Neighbours of a lane by its first two bits share a tile's or a filter's words.
    """
    return Lanes(
        filters // 4,
        1,
        lambda lane, i: (lane // 2 % 2 + lane // 8 % 2 * 2) * 4 + i % 4 + i // 4 * 16,
        lambda lane, j: (lane % 2 + lane // 4 % 2 * 2) * 4 + j % 4 + j // 4 * 16,
        lambda warp, lane, s: warp * 2 + lane // 16,
    )


@dataclass(frozen=True)
class Layout:
    """One layout, for blocks of ``filters`` output channels × TILES tiles.

    A thread stores ``width`` sums at once: those of one filter and of tiles ``step`` apart, of
    which the ``v``-th vector's first is ``first(v)``. In a round a thread takes two pairs of a
    filter and a tile, e = 0 and 1, to transform: neighbouring tiles of a filter (``along``
    "tiles"), neighbouring filters of a tile ("filters"), or neither ("").

    ``shuffled``: it transforms other tiles of that filter (``reads``), and has its own by
    exchanging a result with the neighbouring thread: an even one the second, an odd one the first.
    """

    name: str
    shown: str  # where it is from
    filters: int
    lanes: Lanes
    width: int
    step: int
    plane: int  # floats of a state in a round, padding included
    buffers: int  # as the paper has it
    along: str
    address: Callable[[Index, Index], Index]  # (filter, tile) -> float of its state's plane
    holds: Callable[[Index, Index, Index], Index]  # (round, i, first tile j): stored then
    active: Callable[[Index, Index], Index]  # (lane, round): whether it stores
    pair_filter: Callable[[Index, Index, Index], Index]  # (round, thread, e)
    pair_tile: Callable[[Index, Index, Index], Index]  # (round, thread, e)
    reads: Callable[[Index, Index, Index], Index] | None = None  # (round, thread, e)

    @property
    def shuffled(self) -> bool:
        """Whether threads exchange results before they store them."""
        return self.reads is not None

    @property
    def read_tile(self) -> Callable[[Index, Index, Index], Index]:
        """The tile that a thread transforms as its e-th: (round, thread, e)."""
        return self.reads or self.pair_tile

    @property
    def rounds(self) -> int:
        """Rounds, of PAIRS pairs each."""
        return self.filters * TILES // PAIRS

    @property
    def vectors(self) -> int:
        """Vectors of a lane's eight tiles."""
        return 8 // self.width

    def first(self, v: Index) -> Index:
        """The first of a lane's tiles in its ``v``-th vector."""
        return v // self.step * (self.step * self.width) + v % self.step if self.step > 1 else (
            v * self.width
        )  # fmt: skip

    @property
    def bytes(self) -> int:
        """Bytes of one buffer."""
        return 4 * STATES * self.plane

    def cuda(self, name: str, wide: bool = False) -> str:
        """The functions as device functions <name>_address and so on, and constants."""
        functions: tuple[tuple[str, str, tuple[str, ...], Callable[..., Index]], ...] = (
            ("int", "filter_of", ("lane", "i"), self.lanes.filter_of),
            ("int", "tile_of", ("lane", "j"), self.lanes.tile_of),
            ("int", "state_of", ("warp", "lane", "s"), self.lanes.state_of),
            ("int", "address", ("filter", "tile"), self.address),
            ("int", "first", ("v",), self.first),
            ("bool", "holds", ("round", "i", "j"), self.holds),
            ("bool", "active", ("lane", "round"), self.active),
            ("int", "pair_filter", ("round", "thread", "e"), self.pair_filter),
            ("int", "pair_tile", ("round", "thread", "e"), self.pair_tile),
            ("int", "read_tile", ("round", "thread", "e"), self.read_tile),
        )
        text = [
            f"// the layout {self.name}: {self.shown}",
            f"constexpr int ROUNDS = {self.rounds}, WIDTH = {self.width}, STEP = {self.step}, "
            f"VECTORS = {self.vectors}, PLANE = {self.plane}, SHUFFLED = {int(self.shuffled)};",
            f"constexpr int HELD = {self.lanes.held}, TM = {self.lanes.m}, TT = 8;"
            "  // states of a lane; its filters and tiles",
        ]
        for kind, function, names, of in functions:
            found = of(*map(Expression, names))
            found = str(found).lower() if isinstance(found, bool) else found
            arguments = ", ".join(f"[[maybe_unused]] unsigned {n}" for n in names)
            text.append(
                f"__device__ __forceinline__ constexpr {kind} {name}_{function}({arguments}) "
                f"{{ return {found}; }}"
            )
        return "\n".join(text)


def _yan(filters: int) -> Layout:
    """128-bit stores; of 16 filters, by cells of four, rows of 32 tiles and 8 of padding."""

    def address(m: Index, tile: Index) -> Index:
        return m % 4 * 160 + m % 16 // 4 * 40 + tile

    return Layout(
        "yan", "Yan et al., Figure 5: float4, 40 KB, half of the lanes a round", filters,
        figure4(filters),
        width=4, step=1, plane=640, buffers=1, along="",
        address=address,
        holds=lambda round, i, j: equal(i // 4, round // 2),
        active=lambda lane, round: equal(lane % 16 // 8, round % 2),
        pair_filter=lambda round, thread, e: round * 16 + thread // 32 * 2 + e,
        pair_tile=lambda round, thread, e: thread % 32,
    )  # fmt: skip


def _sts64(
    filters: int,
    name: str,
    shown: str,
    plane: int,
    buffers: int,
    address: Callable[..., Index],
    swapped: bool = True,
) -> Layout:
    """64-bit stores of all lanes. Of a cell's four tiles one vector has the first and the third,
    one the second and the fourth (y and z swapped), so that a thread's two pairs are neighbours.
    Without ``swapped`` the vectors are neighbours, and threads exchange results.

    ``address``: (filter of a cell's pair, row of cells, half of the filters, matrix, place there).
    """

    def of(m: Index, tile: Index) -> Index:
        cell, y, z = m % 32 // 4, tile % 2, tile % 4 // 2
        matrix, second = (y, z) if swapped else (z, y)
        return address(m % 2, cell % 4, cell // 4, matrix, tile // 4 * 2 + second)

    return Layout(
        name, shown, filters, figure4(filters),
        width=2, step=2 if swapped else 1, plane=plane, buffers=buffers, along="tiles",
        address=of,
        holds=lambda round, i, j: equal(i // 2, round),
        active=lambda lane, round: True,
        pair_filter=lambda round, thread, e: (
            round // 2 * 32 + thread % 32 // 16 * 16 + thread // 64 * 4 + round % 2 * 2
            + thread // 32 % 2
        ),
        pair_tile=lambda round, thread, e: thread % 16 * 2 + e,
        reads=None if swapped else (
            lambda round, thread, e: thread % 16 // 2 * 4 + thread % 2 + e * 2
        ),
    )  # fmt: skip


def _channels(filters: int) -> Layout:
    """32-bit stores; a tile's filters by their place in a cell first, so that neither a warp's
    stores nor its loads of neighbouring filters meet in a bank."""
    wide = filters == 64
    apart, row = (24, 92) if wide else (8, 40)  # of a filter in its cell; of a tile

    def address(m: Index, tile: Index) -> Index:
        slot = tile % 16 // 4 + tile % (2 if wide else 4) * 4
        return slot * row + m % 4 * apart + m // 4

    def tile(round: Index, thread: Index, e: Index) -> Index:
        slot = thread // (filters // 2)
        first = round % 2 * 2 + round // 2 * 16 if wide else round * 16
        return slot % 4 * 4 + slot // 4 + first

    return Layout(
        "channels", "of our own, for NHWC: float, a tile's filters together", filters,
        halves(filters),
        width=1, step=1, plane=752 if wide else 644, buffers=1, along="filters",
        address=address,
        holds=lambda round, i, j: equal(j // (2 if wide else 4), round),
        active=lambda lane, round: True,
        pair_filter=lambda round, thread, e: thread % (filters // 2) * 2 + e,
        pair_tile=tile,
    )  # fmt: skip


def _cells(i: Index, row: Index, half: Index, matrix: Index, place: Index) -> Index:
    at = row * 20 + place
    return (i * 2 + matrix) * 160 + at // 16 * 32 + half * 16 + at % 16


def _merged(i: Index, row: Index, half: Index, matrix: Index, place: Index) -> Index:
    return i * 268 + row * 68 + matrix * 32 + half * 16 + place


def _compact(i: Index, row: Index, half: Index, matrix: Index, place: Index) -> Index:
    return i * 256 + row * 64 + matrix * 32 + (half * 16 + place + row * 4) % 32


def _wide(filters: int) -> Layout:
    """128-bit stores of all lanes: rows of four cells, turned so that a filter's tiles, which lie
    in four rows, meet in no bank (banks.py has the search that says how far)."""

    def address(m: Index, tile: Index) -> Index:
        row = (m % 2 * 2 + m % 32 // 16) * 4 + tile // 8 % 2 * 2 + tile // 16
        place = m % 16 // 4 * 8 + tile % 8 + tile // 8 % 2 * 8 + tile // 16 * 16
        return row * 32 + place % 32

    return Layout(
        "wide", "of our own, by a search: float4 of all lanes, no padding, 32 KB", filters,
        figure4(filters),
        width=4, step=1, plane=512, buffers=2, along="",
        address=address,
        holds=lambda round, i, j: equal(i // 2, round),
        active=lambda lane, round: True,
        pair_filter=lambda round, thread, e: (
            round // 2 * 32 + thread // 32 * 4 + round % 2 * 2 + e
        ),
        pair_tile=lambda round, thread, e: thread % 32,
    )  # fmt: skip


def layouts(filters: int) -> tuple[Layout, ...]:
    """All layouts of blocks of 64 or 32 output channels."""
    own = "openCNN, Figure"
    return (
        _channels(filters),
        _yan(filters),
        _sts64(filters, "sts64", f"{own} 6: optSTS64, 40 KB", 640, 1, _cells),
        _sts64(filters, "sts64_final", f"{own} 7: less padding, 33.5 KB", 536, 1, _merged),
        _sts64(filters, "compact", f"{own} 8: no padding, 32 KB, two buffers", 512, 2, _compact),
        _wide(filters),
        _sts64(filters, "shuffled", f"{own}s 9 to 11: y and z not swapped", 640, 1, _cells, False),
    )


def layout(name: str, filters: int) -> Layout:
    """The layout of that name. Raises ValueError where there is none.

    >>> layout("compact", 64).bytes
    32768
    """
    for found in layouts(filters):
        if found.name == name:
            return found
    known = ", ".join(found.name for found in layouts(filters))
    raise ValueError(f"there is no layout {name!r}: choose one of {known}")
