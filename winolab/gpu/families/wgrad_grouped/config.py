"""Block shapes of the kernel of grouped layers' filter gradients, and which of them serve one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from winolab.gpu.families.axes import best_patch
from winolab.gpu.families.wgrad import Gradient
from winolab.options import KernelConfig

UNIT, EIGHT = 16, 8  # output channels and channels of x of a product
MOST = 8  # eights of channels that a unit's groups have, at most
SUMS = 18  # products' sums of a warp, at most: 72 registers of a thread
ROWS = 16  # outputs that a warp sums at once
PATCHES = (64, 128, 256)  # outputs of a work tile, about
WARP_ROWS, UNITS = (1, 2, 4, 8), (1, 2, 4)
WARPS = 8  # of a block that is offered, at most (docs/notes/138)
MOST_WARPS = {2: 16, 4: 8}  # of a block, by an element's bytes, as registers allow


@dataclass(frozen=True)
class Span:
    """What units of a gradient meet: ``eights`` of channels of x a unit, at most."""

    groups: int
    channels: int  # of x, of a group
    out_channels: int
    eights: int

    @property
    def tiles(self) -> int:
        """Eights of a warp."""
        return 2 - self.eights % 2

    @property
    def pieces(self) -> int:
        """Warps side by side that have all of them."""
        return self.eights // self.tiles

    @property
    def units(self) -> int:
        """Units of all output channels."""
        return -(-self.groups * self.out_channels // UNIT)

    def slice_eights(self, units: int) -> int:
        """Eights of channels of x that as many units side by side meet, at most."""
        return _eights(self.groups, self.channels, self.out_channels, units)


@lru_cache(maxsize=1024)
def _eights(groups: int, channels: int, out_channels: int, units: int) -> int:
    """Eights of channels of x that so many units side by side meet, at most."""
    width, period = units * UNIT, math.lcm(units * UNIT, out_channels * EIGHT)
    whole = groups * out_channels

    def met(first: int) -> int:
        last = min(first + width, whole) - 1
        begin = first // out_channels * channels // EIGHT
        return -(-(last // out_channels + 1) * channels // EIGHT) - begin

    return max(met(first) for first in range(0, min(whole, period), width))


def span(g: Gradient, vector: int) -> Span | None:
    """What units meet of a gradient; None where that is too much, and where ``vector`` channels are
    no part of all of a side."""
    sides = g.channels, g.out_channels
    if (
        g.groups == 1
        or not all(sides)
        or sides == (1, 1)
        or any(g.groups * n % vector for n in sides)
    ):
        return None
    eights = _eights(g.groups, *sides, 1)
    found = Span(g.groups, *sides, eights + (eights > 2 and eights % 2))
    return found if found.eights <= MOST else None


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernel, by its names, and a work tile's outputs: ``rows`` ×
    ``columns`` of ``images``. A block has ``units`` of 16 output channels, whose outputs
    ``warp_rows`` warps share, and ``taps`` of the filter."""

    images: int
    rows: int
    columns: int
    warp_rows: int
    units: int
    taps: int

    def __str__(self) -> str:
        shape = f"{self.images}x{self.rows}x{self.columns}"
        return f"{shape} warps={self.warp_rows} units={self.units} taps={self.taps}"

    @property
    def outputs(self) -> int:
        """Outputs of a work tile, of a channel."""
        return self.images * self.rows * self.columns

    def warps(self, found: Span) -> int:
        """Warps of a block."""
        return self.warp_rows * self.units * found.pieces

    def runs(self, found: Span, size: int) -> bool:
        """Whether a kernel has this shape; ``size``: bytes of an element of x and dy."""
        counted = min(self.images, self.rows, self.columns, self.taps) > 0
        shape = self.warp_rows in WARP_ROWS and self.units in UNITS
        return (
            counted
            and shape
            and self.taps * found.tiles <= SUMS
            and self.warps(found) <= MOST_WARPS[size]
        )


def patches(g: Gradient) -> list[tuple[int, int, int]]:
    """Images, rows and columns of work tiles: of each size those that need the fewest products,
    then the fewest pixels of x; of several images where a map is small."""
    sizes, found = g.output[1:], []
    for outputs in PATCHES:
        shape = best_patch(sizes, outputs, ROWS, lambda i, n: met_pixels(g, 1 + i, n))
        images = min(g.batch, max(1, outputs // math.prod(shape)))
        found.append((images if shape == sizes else 1, *shape))
    return [*dict.fromkeys(found)]


def met_pixels(g: Gradient, dimension: int, outputs: int) -> int:
    """Pixels along a dimension that the taps of so many outputs meet, from the first to the
    last."""
    across = (g.filter[dimension] - 1) * g.dilation[dimension]
    return (outputs - 1) * g.stride[dimension] + across + 1


def configs(g: Gradient, found: Span) -> Iterator[Config]:
    """Block shapes of a call, none with units or warps that have nothing: of as many taps as a warp
    has sums for, and of a third, whose blocks are more."""
    taps, most = math.prod(g.filter), SUMS // found.tiles
    held = -(-taps // -(-taps // most))
    for images, rows, columns in patches(g):
        for units, few in product(UNITS, sorted({held, -(-held // 3)})):
            useful = [n for n in WARP_ROWS if (n - 1) * ROWS < images * rows * columns]
            shapes = (Config(images, rows, columns, n, units, few) for n in reversed(useful))
            fits = (v for v in shapes if v.warps(found) <= WARPS)
            if units < 2 * found.units and (v := next(fits, None)):
                yield v
