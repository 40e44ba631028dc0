"""Where bulk tensor copies put input tiles."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from winolab.algorithm import Tile
from winolab.gpu.families.gamma.tiles import widths_of
from winolab.gpu.families.gamma_wgmma.boxes import LINE, PIXEL, SLOT, Boxes
from winolab.gpu.families.gamma_wgmma.config import SHARES, Config

TILES = [Tile(alpha + 1 - r, r) for alpha, rs in widths_of("fp32_split").items() for r in rs]
SHAPES = [(1, 4), (2, 2), (4, 1), (8, 1), (1, 1)]  # tiles of a row, images


def swizzled(at: int) -> int:
    """CUDA programming guide, tensor swizzle modes: 64 bytes."""
    return at ^ (at >> 7 & 3) << 4


def wavefronts(boxes: Boxes, size: int) -> int:
    """The most that a phase of a producer warp's reads takes, of any warp and pixel."""
    lanes = 8 if size == 4 else 16  # that shared memory serves at once: 16 or 8 bytes each
    most = 0
    for unit, pixel, phase in product(boxes.units, range(8), range(32 // lanes)):
        hit: dict[int, set[int]] = {}
        for lane in range(phase * lanes, (phase + 1) * lanes):
            channels = (lane // 16 * 2 + lane % 2) * 4 * size
            at = swizzled((boxes.pixel[unit[lane // 2 % 8]] + pixel) * PIXEL + channels)
            hit.setdefault(at % LINE // 16, set()).add(at // 16)
        most = max(most, *map(len, hit.values()))
    return most


@pytest.mark.parametrize("size", [4, 2])
@pytest.mark.parametrize(("run", "images"), SHAPES)
def test_every_tile_belongs_to_one_lane(run: int, images: int, size: int) -> None:
    for tile, rows, share in product(TILES, (1, 2, 4, 8), SHARES):
        config = Config(rows, share, run=run, images=images)
        boxes, rest = config.boxes(tile, size), config.stage_tiles(tile) % SLOT
        units = boxes.units
        assert sorted(at for unit in units for at in unit) == [*range(SLOT)]
        # V is written without conflicts; warps have whole units of a slot that the stage ends in
        assert all(sorted(at % 8 for at in unit) == [*range(8)] for unit in units)
        assert all(max(unit) < rest for unit in units[: rest // 8])
        assert max(Counter(boxes.pixel).values()) == 1
        assert (max(boxes.pixel) + tile.alpha) * PIXEL <= boxes.slot


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_what_the_planner_takes_is_read_with_few_conflicts(tile: Tile) -> None:
    """Blocks of four and eight rows, the rows of a stage as the papers' filters have them."""
    for (run, images), rows in product(SHAPES[:-1], (4, 8)):
        if run * images > Config(rows).columns(tile):
            continue
        config = Config(rows, min(tile.r, 5), run=run, images=images)
        found = {size: wavefronts(config.boxes(tile, size), size) for size in (4, 2)}
        threefold = (tile, images, rows) == (Tile(3, 4), 4, 8)  # FP32: one phase of one warp
        assert found[2] <= 2
        assert found[4] <= (3 if threefold else found[2])
        if tile == Tile(6, 3):
            assert found[4] == 1
