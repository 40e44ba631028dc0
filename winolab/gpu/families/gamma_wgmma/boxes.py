"""Where bulk tensor copies put input tiles, and which ones a producer warp transforms together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product

import numpy as np

from winolab.algorithm import Tile
from winolab.gpu.families.gamma_wgmma.matching import matching

SLOT, UNIT = 32, 8  # tiles that are fetched together, and those of one of the four warps
PIXEL, LINE = 64, 128  # bytes: of a pixel's channels in a box; from which a box may begin
SLOT_LINE = 1024  # from which a slot may begin: the swizzle repeats every 512
RESIDUES = 8  # pixels that hit all banks: the swizzle moves 16-byte units of pairs of them


def slot_aligned(size: int) -> int:
    """Bytes up to where a slot may begin."""
    return -(-size // SLOT_LINE) * SLOT_LINE


@dataclass(frozen=True)
class Boxes:
    """Boxes of ``run`` neighbouring tiles of a row × ``images``, of all rows of a slot, or of half
    of them where a stage's last slot has no more.
    """

    tile: Tile
    columns: int  # tiles of a slot's row; images vary first, then tiles of a row
    run: int
    images: int
    first: int = 0  # tiles of a stage's last slot, where they do not fill it
    extra: int = 0  # pixels of a row that nobody reads
    padding: int = 0  # lines between boxes
    most: int = SLOT  # rows of tiles of a box

    @property
    def rows(self) -> int:
        """Rows of tiles in a slot."""
        return SLOT // self.columns

    @property
    def tiles(self) -> int:
        """Tiles of a box's row: columns of a block."""
        return self.run * self.images

    @property
    def across(self) -> int:
        """Boxes of a slot's row."""
        return self.columns // self.tiles

    @property
    def box_rows(self) -> int:
        """Rows of tiles in a box. Not one: twice as many requests cost what is saved."""
        halved = self.first == SLOT // 2 and self.rows > 2
        return min(self.rows // 2 if halved else self.rows, self.most)

    @property
    def count(self) -> int:
        """Boxes of a slot."""
        return self.across * (self.rows // self.box_rows)

    @property
    def pixels(self) -> int:
        """Pixels of a box's row."""
        return self.run * self.tile.n + self.tile.r - 1 + self.extra

    @property
    def pitch(self) -> int:
        """Bytes from box to box."""
        size = self.images * self.box_rows * self.pixels * PIXEL
        return (-(-size // LINE) + self.padding) * LINE

    @property
    def slot(self) -> int:
        """Bytes of a slot."""
        return slot_aligned(self.count * self.pitch)

    @cached_property
    def pixel(self) -> list[int]:
        """The first pixels of a slot's tiles, counted from the slot's beginning."""
        row, column = np.divmod(np.arange(SLOT), self.columns)
        half, row = np.divmod(row, self.box_rows)
        box, inside = np.divmod(column, self.tiles)
        along, image = np.divmod(inside, self.images)
        first = (image * self.box_rows + row) * self.pixels + along * self.tile.n
        return ((half * self.across + box) * (self.pitch // PIXEL) + first).tolist()

    @cached_property
    def units(self) -> tuple[tuple[int, ...], ...]:
        """The tiles of every warp, in the order of its lanes; the first warps have the ``first``.

        A warp's eight tiles have different places in rows of 128 bytes of V, so that they are
        written without bank conflicts. Where pixels allow, residues differ too, so that they are
        read without: 16-bit elements by all eight tiles at once, FP32 by four and four.
        """
        return (*self._units(range(self.first)), *self._units(range(self.first, SLOT)))

    @cached_property
    def _residues(self) -> list[int]:
        """Which banks the first pixels of a slot's tiles hit."""
        return [pixel % RESIDUES for pixel in self.pixel]

    def _units(self, tiles: range) -> Iterator[tuple[int, ...]]:
        for unit in mixed(tuple(self._residues), tiles):
            yield tuple(sorted(unit, key=lambda at: self.pixel[at] & 2))

    @cached_property
    def conflicts(self) -> int:
        """By how much the reads of all units take longer than without conflicts, times of one."""
        residues = self._residues
        return sum(max(Counter([residues[at] for at in u]).values()) - 1 for u in self.units)

    def constants(self) -> dict[str, int]:
        """The constants of fetch_boxes.cuh; a byte a tile of a warp, the first one last."""
        units = {f"UNIT_{w}": int.from_bytes(unit, "little") for w, unit in enumerate(self.units)}
        slot = {"SLOT_COLUMNS": self.columns, "SLOT_SIZE": self.slot, "BOX_ROWS": self.box_rows}
        box = {"BOX_TILES": self.tiles, "BOX_PIXELS": self.pixels, "BOX_PITCH": self.pitch}
        return slot | box | {"BOXES": self.count} | units


@lru_cache(maxsize=4096)  # boxes of other sizes have the same residues: half of all calls
def mixed(residues: tuple[int, ...], tiles: range) -> tuple[list[int], ...]:
    """These tiles in units whose places differ and, where it can be, their residues."""
    left, units = set(tiles), []
    for count in range(len(tiles) // UNIT, 0, -1):
        shares = Counter([residues[at] for at in left])
        places = [r for r, share in sorted(shares.items()) for _ in range(-(-share // count))]
        found = {(at % UNIT, residues[at]): at for at in sorted(left, reverse=True)}
        edges = [[(column, r) in found for r in places] for column in range(UNIT)]
        matched = matching(edges)
        if all(edge[i] for edge, i in zip(edges, matched, strict=True)):
            unit = [found[column, places[i]] for column, i in enumerate(matched)]
        else:  # uneven residues, of other rows than units can mix
            unit = [next(at for at in sorted(left) if at % UNIT == c) for c in range(UNIT)]
        left -= set(unit)
        units.append(unit)
    return tuple(units)


@lru_cache(maxsize=1024)
def boxes(
    tile: Tile, columns: int, run: int, images: int, first: int, size: int, most: int
) -> Boxes:
    """Boxes whose tiles are spread well over the banks, with as little padding as that takes.

    ``columns``: of a block; ``size``: of an element; ``most``: rows of a box. In 16 bits requests
    bind sooner than shared memory: pixels that nobody reads are worth the end of fourfold conflicts
    there, not of twofold.
    """
    enough = 0 if size == 4 else SLOT // UNIT
    found = []
    usual = Boxes(tile, min(SLOT, columns), run, images, first, most=most)
    paddings = range(4 if usual.count > 1 else 1)  # behind a slot's only box it moves nothing
    for extra, padding in product(range(2), paddings):
        made = replace(usual, extra=extra, padding=padding)
        found.append((max(enough, made.conflicts), extra, made.conflicts, made.slot, made))
        if made.conflicts == 0:
            break
    return min(found, key=lambda entry: entry[:-1])[-1]
