"""Copies of an array into another memory order, by a kernel of their own (layout_copy.cuh).

Kernels read and write channels-last arrays; what lies otherwise is copied on the way, in the same
recorded call. Any strides serve: channels-first, with gaps, backwards, broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.epilogue import constants as epilogue_constants
from winolab.gpu.params import LINE, MOST, VECTOR, Kernels, Params, uncounted
from winolab.gpu.runtime.array_layout import ArrayLayout

KERNEL, THREADS = "winolab_layout_copy", 256
PARAMS = layout("LayoutCopyParams", "layout_copy")
FINISH_PARAMS = layout("LayoutFinishParams", "layout_copy", fused=True)
# Elements of a tile along f and g, by bytes of an element: of those that waste as little the first.
TILES = {
    4: ((128, 32), (32, 128), (64, 64), (256, 16), (16, 256), (1024, 4), (4, 1024)),
    2: ((128, 64), (64, 128), (256, 32), (32, 256), (512, 16), (16, 512), (2048, 4), (4, 2048)),
}
ONE_ROW: tuple[int, int] = (4096, 1)  # serves too where nothing is transposed
# By 238 tiles of 34 copies on an H200: what rows shorter than a line of memory cost, accesses of
# one element, stores of rows that begin anywhere, and 16-bit elements of merged rows.
SHORT, SCALAR, CUT, MERGED = 0.6, 3.0, 7.0, 1.3
LONGEST = 1 << 30  # elements of an axis: a tile more is still counted
BLOCKED = 3  # axes beside f and g


@dataclass(frozen=True)
class Axis:
    """An axis of the arrays: elements, and the strides of all of them."""

    size: int
    source: int
    target: int
    bias: int = 0
    residual: int = 0


@dataclass(frozen=True)
class Finishing:
    """An epilogue that a copy of y, of that dtype, applies: the bias' stride, and where the
    residual lies."""

    epilogue: Epilogue
    dtype: str
    bias: int
    residual: ArrayLayout | None

    @property
    def slope(self) -> float:
        """The activation's."""
        return self.epilogue.activation.slope if self.epilogue.activation else 0.0


@dataclass(frozen=True)
class Access:
    """How threads load or store: so many neighbours at once, of rows that begin anywhere
    (``late``), or that follow each other in a tile without a gap (``merged``)."""

    count: int
    late: bool = False
    merged: bool = False

    @classmethod
    def of(
        cls,
        along: Axis,
        across: Axis,
        tile: tuple[int, int],
        aligned: bool,
        steps: list[int],
        itemsize: int,
    ) -> Access:
        """Accesses of neighbours ``along`` an axis, whose steps are the first of ``steps``, those
        ``across`` the second; ``aligned``: the address. ``tile``: along and across."""
        count = VECTOR // itemsize
        stride, row, *others = steps
        if stride != 1:
            return cls(1)
        fits = min(count, tile[0])
        if aligned and not any(n % fits for n in (along.size, row, *others)):
            return cls(fits)
        if row == along.size and 1 < along.size <= tile[0] and across.size > 1:
            return cls(count, late=True, merged=True)
        if min(along.size, tile[0]) < 4 * count:
            return cls(1)  # most vectors would be cut by an end
        return cls(count, late=True)

    @property
    def begins(self) -> int:
        """Elements among which a row's first vector begins: 1 where rows are aligned."""
        return self.count if self.late and not self.merged else 1

    def own(self, size: int) -> int:
        """Columns, or rows, that a tile of that size owns."""
        return size - (self.count if self.begins > 1 else 0)


@dataclass(frozen=True)
class LayoutCopy:
    """A copy: f and g are the axes of its tiles, along which elements of the source and of the
    target are neighbours; ``blocked`` are the others."""

    itemsize: int
    f: Axis
    g: Axis
    blocked: tuple[Axis, ...]
    tile: tuple[int, int]
    loads: Access
    stores: Access
    plain: bool  # f is the axis of neighbours in both
    finishing: Finishing | None = None

    @classmethod
    def of(
        cls,
        source: ArrayLayout,
        target: ArrayLayout,
        itemsize: int,
        finishing: Finishing | None = None,
    ) -> LayoutCopy:
        """The copy of an array that lies as ``source`` to where it lies as ``target``."""
        every = cls.all(source, target, itemsize, finishing)
        return min(every, key=lambda copy: copy.cost)

    @classmethod
    def all(
        cls,
        source: ArrayLayout,
        target: ArrayLayout,
        itemsize: int,
        finishing: Finishing | None = None,
    ) -> list[LayoutCopy]:
        """That by every tile, the first of which serves where several cost as little."""
        axes = merged(source, target, finishing)
        f = min(axes, key=lambda a: (abs(a.source) or MOST, abs(a.target)))
        rest = sorted((a for a in axes if a is not f), key=lambda a: abs(a.target))
        plain = not rest or abs(f.target) < abs(rest[0].target)
        g = rest[0] if rest else Axis(1, 0, 0)
        blocked = tuple(a for a in rest if a is not g)
        loaded = [a.source for a in (f, g, *blocked)]
        along, across = (f, g) if plain else (g, f)
        stored = [a.target for a in (along, across, *blocked)]
        found = []
        for tile in [*TILES[itemsize], *([ONE_ROW] if plain else [])]:
            loads = Access.of(f, g, tile, source.address_aligned, loaded, itemsize)
            other = tile if plain else tile[::-1]
            stores = Access.of(along, across, other, target.address_aligned, stored, itemsize)
            if plain:
                late = loads.late or stores.late
                loads = stores = Access(1 if late else min(loads.count, stores.count))
            if min(prod(tile) // loads.count, prod(tile) // stores.count) >= THREADS:
                found.append(cls(itemsize, f, g, blocked, tile, loads, stores, plain, finishing))
        return found

    @property
    def cost(self) -> float:
        """What tiles are chosen by: elements that threads stand for, useful or not, the more the
        shorter a tile's rows are for memory and the more of its vectors are cut."""
        cost = 1.0 * prod(self.tiles) * prod(self.tile)
        ends = (self.f.size,) if self.plain else (self.f.size, self.g.size)
        for size, side, access in zip(ends, self.tile, (self.loads, self.stores), strict=False):
            if side < size:
                cost *= max(1.0, LINE / (side * self.itemsize)) ** SHORT
            if access.count == 1:
                cost *= SCALAR
        late = CUT * self.stores.begins / self.tile[0 if self.plain else 1]
        return (
            cost
            * (1 + (late if self.stores.begins > 1 else 0))
            * (MERGED if self.loads.merged and self.itemsize == 2 else 1)
        )

    @property
    def bytes(self) -> int:
        """Bytes of the array."""
        return self.itemsize * prod(a.size for a in (self.f, self.g, *self.blocked))

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles along f and g."""
        (f, g), more = self.tile, self.stores.begins - 1
        return -(-self.f.size // self.loads.own(f)), -(-(self.g.size + more) // self.stores.own(g))

    @property
    def blocks(self) -> int:
        """Tiles of all."""
        return prod(self.tiles) * prod(a.size for a in self.blocked)

    def source(self) -> str:
        """The translation unit of the kernel."""
        epilogue = self.finishing and (self.finishing.epilogue, self.finishing.dtype)
        return _source(self.itemsize, self.plain, self.loads, self.stores, self.tile, epilogue)

    def launch(
        self,
        kernels: Kernels,
        source: int,
        target: int,
        key: str = KERNEL,
        bias: int = 0,
        residual: int = 0,
    ) -> None:
        """Copy on the current stream, from and to these addresses; ``key``: the kernel's. Raises
        ValueError for more blocks than CUDA launches, and where tiles would end behind what the
        kernel counts."""
        for name, count in (
            ("the number of blocks of a copy", self.blocks),
            ("a copy's end along f", self.f.size + self.tile[0]),
            ("a copy's end along g", self.g.size + self.tile[1]),
        ):
            if count > MOST:
                raise uncounted(name, count)
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
            *(-(-(1 << 31) // a.size) if a.size > 1 else 0 for a in (self.f, self.g)),
        )
        if self.finishing:
            finish = FINISH_PARAMS.pack(
                bias,
                residual,
                *(a.bias for a in axes),
                *(a.residual for a in axes),
                self.finishing.slope,
            )
            params = Params.of(params, finish)
        kernels[key]((self.blocks, 1, 1), THREADS, params)


def merged(
    source: ArrayLayout, target: ArrayLayout, finishing: Finishing | None = None
) -> list[Axis]:
    """The axes of more than one element, those that follow each other in all arrays as one."""
    none = (0,) * len(source.shape)
    bias, residual = none, none
    if finishing:
        bias = (*none[1:], finishing.bias)
        residual = finishing.residual.strides if finishing.residual else none
    each = zip(source.shape, source.strides, target.strides, bias, residual, strict=True)
    axes = [Axis(*axis) for axis in each if axis[0] > 1]
    found: list[Axis] = []
    for axis in sorted(axes, key=lambda a: (-abs(a.target), -abs(a.source))):
        outer = found[-1] if found else None
        if (
            outer
            and all(
                getattr(outer, name) == getattr(axis, name) * axis.size
                for name in ("source", "target", "bias", "residual")
            )
            and outer.size * axis.size <= LONGEST
        ):
            found[-1] = replace(axis, size=outer.size * axis.size)
        else:
            found.append(axis)
    return found or [Axis(1, 1, 1)]


@lru_cache(maxsize=256)
def _source(
    itemsize: int,
    plain: bool,
    loads: Access,
    stores: Access,
    tile: tuple[int, int],
    epilogue: tuple[Epilogue, str] | None,
) -> str:
    constants = {
        "SIZE": itemsize,
        "PLAIN": plain,
        "LOADED": loads.count,
        "STORED": stores.count,
        "UNALIGNED_F": loads.late,
        "UNALIGNED_G": stores.late,
        "MERGED_F": loads.merged,
        "MERGED_G": stores.merged,
        "TILE_F": tile[0],
        "TILE_G": tile[1],
        **(epilogue_constants(*epilogue) if epilogue else {}),
    }
    return unit("layout copy", constants, {}, ("layout_copy",))
