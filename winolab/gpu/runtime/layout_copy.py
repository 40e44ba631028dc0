"""Copies of an array into another memory order, by a kernel of their own (layout_copy.cuh).

Kernels read and write channels-last arrays; what lies otherwise is copied on the way, in the same
recorded call. Any strides serve: channels-first, with gaps, backwards, broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import layout
from winolab.gpu.params import MOST, VECTOR, Kernels, uncounted
from winolab.gpu.runtime.array_layout import ArrayLayout

KERNEL, THREADS = "winolab_layout_copy", 256
PARAMS = layout("LayoutCopyParams", "layout_copy")
# Elements of a tile along f and g. The first serves where several waste as little.
TILES = ((64, 64), (128, 32), (32, 128), (256, 16), (16, 256), (1024, 4), (4, 1024))
ROWS = (*TILES, (4096, 1))  # without a transposition a tile of one row serves, too
SEGMENT = 64  # bytes that a tile has along either axis at least, or all there are
LONGEST = 1 << 30  # elements of an axis: a tile more is still counted
BLOCKED = 3  # axes beside f and g


@dataclass(frozen=True)
class Axis:
    """An axis of the arrays: elements, and the strides of source and target."""

    size: int
    source: int
    target: int


@dataclass(frozen=True)
class LayoutCopy:
    """A copy: f and g are the axes of its tiles, ``blocked`` the others."""

    itemsize: int
    f: Axis
    g: Axis
    blocked: tuple[Axis, ...]
    plain: bool  # f is the axis of neighbours in both
    loaded: int  # neighbours that a thread loads at once
    stored: int
    tile: tuple[int, int]

    @classmethod
    def of(cls, source: ArrayLayout, target: ArrayLayout, itemsize: int) -> LayoutCopy:
        """The copy of an array that lies as ``source`` to where it lies as ``target``."""
        axes = merged(source, target)
        f = min(axes, key=lambda a: (abs(a.source) or MOST, abs(a.target)))
        rest = sorted((a for a in axes if a is not f), key=lambda a: abs(a.target))
        plain = not rest or abs(f.target) < abs(rest[0].target)
        g = rest[0] if rest else Axis(1, 0, 0)
        blocked = tuple(a for a in rest if a is not g)
        loads = _together(f, f.source, [a.source for a in (g, *blocked)], source, itemsize)
        along, other = (f, g) if plain else (g, f)
        steps = [a.target for a in (other, *blocked)]
        stores = _together(along, along.target, steps, target, itemsize)
        if plain:
            loads = stores = min(loads, stores)
        tile = _tile(f.size, g.size, itemsize, plain)
        loads, stores = min(loads, tile[0]), min(stores, tile[0 if plain else 1])
        return cls(itemsize, f, g, blocked, plain, loads, stores, tile)

    @property
    def bytes(self) -> int:
        """Bytes of the array."""
        return self.itemsize * prod(a.size for a in (self.f, self.g, *self.blocked))

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles along f and g."""
        return -(-self.f.size // self.tile[0]), -(-self.g.size // self.tile[1])

    @property
    def blocks(self) -> int:
        """Tiles of all."""
        return prod(self.tiles) * prod(a.size for a in self.blocked)

    def source(self) -> str:
        """The translation unit of the kernel."""
        return _source(self.itemsize, self.plain, self.loaded, self.stored, self.tile)

    def launch(self, kernels: Kernels, source: int, target: int, key: str = KERNEL) -> None:
        """Copy on the current stream, from and to these addresses. Raises ValueError for more
        blocks than CUDA launches."""
        if self.blocks > MOST:
            raise uncounted("the number of blocks of a copy", self.blocks)
        blocked = (*self.blocked, *(Axis(1, 0, 0),) * (BLOCKED - len(self.blocked)))
        axes = (self.f, self.g, *blocked)
        params = PARAMS.pack(
            source,
            target,
            *(a.source for a in axes),
            *(a.target for a in axes),
            *(a.size for a in axes[:-1]),
            *self.tiles,
            int(self.tiles[0] <= self.tiles[1]),
        )
        kernels[key]((self.blocks, 1, 1), THREADS, params)


def merged(source: ArrayLayout, target: ArrayLayout) -> list[Axis]:
    """The axes of more than one element, those that follow each other in both arrays as one."""
    triples = zip(source.shape, source.strides, target.strides, strict=True)
    axes = [Axis(*each) for each in triples if each[0] > 1]
    found: list[Axis] = []
    for axis in sorted(axes, key=lambda a: (-abs(a.target), -abs(a.source))):
        outer = found[-1] if found else None
        if (
            outer
            and outer.source == axis.source * axis.size
            and outer.target == axis.target * axis.size
            and outer.size * axis.size <= LONGEST
        ):
            found[-1] = Axis(outer.size * axis.size, axis.source, axis.target)
        else:
            found.append(axis)
    return found or [Axis(1, 1, 1)]


def _together(
    along: Axis, stride: int, others: list[int], where: ArrayLayout, itemsize: int
) -> int:
    """Neighbours along an axis that one access takes: all of them lie aligned to it."""
    count = VECTOR // itemsize
    if stride != 1 or not where.address_aligned:
        return 1
    while any(n % count for n in (along.size, *others)):
        count //= 2
    return count


def _tile(f: int, g: int, itemsize: int, plain: bool) -> tuple[int, int]:
    """The tile that wastes the fewest threads, its rows not too short for memory."""

    def fits(tile: tuple[int, int]) -> bool:
        ends = zip(tile[:1] if plain else tile, (f, g), strict=False)
        return all(n >= size or n * itemsize >= SEGMENT for n, size in ends)

    def tiles(tile: tuple[int, int]) -> int:
        return -(-f // tile[0]) * -(-g // tile[1])

    return min(filter(fits, ROWS if plain else TILES), key=tiles)


@lru_cache(maxsize=256)
def _source(itemsize: int, plain: bool, loaded: int, stored: int, tile: tuple[int, int]) -> str:
    constants = {
        "SIZE": itemsize,
        "PLAIN": int(plain),
        "LOADED": loaded,
        "STORED": stored,
        "TILE_F": tile[0],
        "TILE_G": tile[1],
    }
    return unit("layout copy", constants, {}, ("layout_copy",))
