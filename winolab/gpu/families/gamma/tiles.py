"""Tiles of the Γ kernels on Tensor Cores; how many, of how many output channels, a block has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from winolab.algorithm import Algorithm, Tile
from winolab.arguments.words import plural
from winolab.gpu.planner.correlation import Correlation, unserved
from winolab.gpu.planner.ranking import MOST_STATES
from winolab.ref.error.metrics import ADMISSIBLE, error_ratio

Widths = Mapping[int, range]
WIDTHS = {8: range(2, 8), 6: range(2, 6), 4: range(2, 4)}  # r of the tiles, by alpha
# States, and r, of split products alone: of 16 bits they lose too much. With five taps or fewer
# they were 0 to 40 % slower than eight on six layers; nine taps as five and five gain on two.
TEN, TEN_WIDTHS = 10, range(5, 8)
WGMMA_TILES = 64  # of a product of a state
TILE_STATES = 512  # of a block, tiles × states of BM channels at most: they fill the registers
FFMA = "precision 'fp32' or 'fp32_ffma'"  # what runs on FFMA units
BM, FEW = 64, 48  # output channels of a block; of ten states


def widths_of(precision: str) -> Widths:
    """r of the tiles that products of this precision have, by alpha."""
    return {**WIDTHS, TEN: TEN_WIDTHS} if precision == "fp32_split" else WIDTHS


@cache
def block_tiles(alpha: int) -> int:
    """Tiles of a block: as many times the 64 of a wgmma as registers hold states of."""
    return max(1, TILE_STATES // alpha // WGMMA_TILES) * WGMMA_TILES


@cache
def block_outputs(alpha: int) -> int:
    """Output channels of a block: as many as registers hold of its tiles' states."""
    return BM if alpha * block_tiles(alpha) <= TILE_STATES else FEW


def _admissible(tile: Tile) -> bool:
    """Whether the planner may take it: of more than MOST_STATES it asks for every problem."""
    return tile.alpha > MOST_STATES or error_ratio(tile) <= ADMISSIBLE


def tiles(
    correlation: Correlation, algorithm: Algorithm | None, precision: str, widths: Widths
) -> tuple[Tile, ...]:
    """The tiles that can run. Raises ValueError where none can, and says why."""
    width = correlation.filter[2]
    if algorithm is None:
        known = (Tile(a + 1 - r, r) for a, served in widths.items() for r in served)
        found = tuple(t for t in known if t.r <= width and _admissible(t))
        if not found:
            other = FFMA if precision == "fp32_split" else "arrays in float32"
            advice = f"; use {other}" if max(correlation.filter) > 1 else ""  # others serve pixels
            raise ValueError(f"no Γ kernel in {precision} has a filter {width} wide{advice}")
        return found
    if algorithm.kind not in ("direct", "gamma") or algorithm.scaling:
        raise unserved(algorithm)
    if algorithm.kind == "direct" or algorithm.variant:
        other = f"; use {FFMA}" if precision == "fp32_split" else ""
        raise ValueError(f"Γ in {precision} has tiles without options, not {algorithm}{other}")
    (tile,) = algorithm.tiles
    if width % tile.r:
        raise ValueError(f"{algorithm} has {plural(tile.r, 'tap')}; the filter is {width} wide")
    if tile.r not in widths.get(tile.alpha, ()) or not tile.minimal:
        known = ", ".join(f"{a} with {r[0]} to {r[-1]} taps" for a, r in sorted(widths.items()))
        raise ValueError(f"{algorithm}: Γ in {precision} has alpha {known}, n + r - 1 states")
    return (tile,)
