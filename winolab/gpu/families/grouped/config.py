"""Block shapes of the kernel of grouped layers, and which of them serve a correlation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from winolab.gpu.families.axes import axes, best_patch
from winolab.gpu.params import LINE
from winolab.gpu.planner.correlation import Correlation
from winolab.options import KernelConfig

EIGHT = 8  # channels of a vector, and of half of a product's depth
MOST = 32  # channels of a bundle on either side
EIGHTS = 4  # of output channels of a warp, which exchange what they store
ROWS = 16  # positions of a product
KEPT = 40  # registers of a filter that a thread keeps, at most; sums of more tiles take some
NARROW = LINE // 2  # channels of a slice, at least where there are so many: of a line, in 16 bits
PATCHES = (32, 64, 128, 256)  # outputs of a work tile, about
WARPS = ((2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (2, 4))


@dataclass(frozen=True)
class Bundle:
    """So many ``groups`` beside each other that eights of channels divide both sides."""

    groups: int
    channels: int  # that are summed
    out_channels: int

    @property
    def eights(self) -> tuple[int, int]:
        """Eights of channels that are summed, and of the result."""
        return self.channels // EIGHT, self.out_channels // EIGHT


def bundle(c: Correlation) -> Bundle | None:
    """What products have of a correlation's groups; None where no bundle is small enough, or where
    groups are left over."""
    if c.groups == 1 or not c.channels or not c.out_channels:
        return None
    groups = math.lcm(*(EIGHT // math.gcd(EIGHT, n) for n in (c.channels, c.out_channels)))
    found = Bundle(groups, groups * c.channels, groups * c.out_channels)
    fits = max(found.channels, found.out_channels) <= MOST and c.groups % groups == 0
    return found if fits and {c.channels, c.out_channels} != {1} else None


def chunks(c: Correlation, found: Bundle) -> int:
    """Eights of channels of all taps of a phase, at most."""
    return math.prod(a.most for a in axes(c)) * found.eights[0]


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernel, by its names, and a work tile's outputs: ``rows`` ×
    ``columns`` of a phase, of a slice of ``warp_columns`` × ``bundles``. A warp has ``tiles``
    products' positions at once; ``kept``: whether its part of the filter stays in registers."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    bundles: int
    tiles: int
    kept: int

    def __str__(self) -> str:
        warps = f"warps={self.warp_rows}x{self.warp_columns}"
        rest = f"bundles={self.bundles} tiles={self.tiles}"
        return f"{self.rows}x{self.columns} {warps} {rest}" + " kept=1" * self.kept

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warp_rows * self.warp_columns

    @property
    def slice(self) -> int:
        """Bundles of a block."""
        return self.warp_columns * self.bundles

    @property
    def positions(self) -> int:
        """Outputs of a work tile, of a channel."""
        return self.rows * self.columns

    def kept_registers(self, c: Correlation, found: Bundle) -> int:
        """Registers of a thread that its warp's part of the filter takes."""
        return -(-chunks(c, found) // 2) * self.bundles * found.eights[1] * 2

    def runs(self, c: Correlation, found: Bundle) -> bool:
        """Whether a kernel has this shape."""
        counted = min(self.rows, self.columns, self.tiles, self.bundles) > 0
        warps = (self.warp_rows, self.warp_columns) in WARPS
        exchanged = counted and self.bundles * found.eights[1] <= EIGHTS and self.tiles <= EIGHTS
        room = KEPT - EIGHT * (self.tiles - 1) if self.kept else math.inf
        return warps and exchanged and self.kept_registers(c, found) <= room


def patches(c: Correlation) -> list[tuple[int, int]]:
    """Rows and columns of work tiles: of each size those that need the fewest products, then the
    fewest pixels of x."""
    _, *along = axes(c)

    def met(dimension: int, outputs: int) -> int:
        a = along[dimension]
        return (outputs - 1) * (1 if c.rotated else a.stride) + (a.most - 1) * a.step + 1

    sizes = along[0].outputs, along[1].outputs
    return [*dict.fromkeys(best_patch(sizes, n, ROWS, met) for n in PATCHES)]


def configs(c: Correlation, found: Bundle) -> Iterator[Config]:
    """Block shapes of a call, none with warps that have no channels."""
    count, most = c.groups // found.groups, EIGHTS // found.eights[1]
    bundles = min(most, 1 << (count - 1).bit_length())
    for rows, columns in patches(c):
        for warp_rows, warp_columns in WARPS:
            needed, narrow = -(-count // bundles), warp_columns * bundles * found.channels < NARROW
            if warp_columns >= 2 * needed or (narrow and warp_columns < min(4, needed)):
                continue
            for tiles, kept in ((1, 1), (2, 1), (2, 0), (4, 0)):
                v = Config(rows, columns, warp_rows, warp_columns, bundles, tiles, kept)
                busy = warp_rows == 2 or (warp_rows - 1) * tiles * ROWS < rows * columns
                if v.runs(c, found) and busy and kept != (v.kept_registers(c, found) > KEPT):
                    yield v
