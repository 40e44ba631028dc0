"""The translation unit of nested Winograd on Tensor Cores: its constants, programs and files."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import lru_cache

from winolab.gpu.codegen.emit import unit
from winolab.gpu.families import scale
from winolab.gpu.families.nested.config import Config
from winolab.gpu.families.nested.tiles import Pair
from winolab.gpu.planner.correlation import SCALING
from winolab.points import points_for
from winolab.ref.algebra.transforms import Transforms, transforms


def name(tiles: Pair) -> str:
    """Lavin & Gray's, of the algorithm: F(4×4,3×3)."""
    n, r = ("×".join(str(getattr(t, side)) for t in tiles) for side in "nr")
    return f"F({n},{r})"


@lru_cache(maxsize=256)
def made_of(tiles: Pair, points: str) -> tuple[Transforms, Transforms]:
    """The transforms along both dimensions."""
    first, second = (transforms(t.n, t.r, points_for(points, t), SCALING) for t in tiles)
    return first, second


def infinite(made: Transforms) -> int:
    """The state that is of the last tap alone, the point being at infinity; -1: there is none."""
    return next((i for i, row in enumerate(made.G) if not any(row[:-1])), -1)


@lru_cache(maxsize=256)
def source(tiles: Pair, points: str, config: Config) -> str:
    """The translation unit of one config: the transforms and the products."""
    made = made_of(tiles, points)
    constants = {"N": math.prod(t.n for t in tiles), "PARTS": 2, "BF16": 0, "WIDE": 1}
    for side, tile, its in zip("HW", tiles, made, strict=True):
        constants |= {f"N{side}": tile.n, f"R{side}": tile.r, f"A{side}": tile.alpha}
        constants |= {f"INFINITE_{side}": infinite(its)}
        constants |= {f"SHIFT_{side}": tile.r // tile.n}  # tiles from a piece to the next
    constants |= {name.upper(): value for name, value in asdict(config).items()}
    constants |= {"BM": config.bm, "SHARED": config.shared_memory}
    constants |= scale.constants(*zip(tiles, made, strict=True)) | scale.BLOCKS
    programs = {}
    for along, its in zip(("rows", "columns"), (m.programs for m in made), strict=True):
        programs |= {f"filter_{along}": its.G, f"input_{along}": its.BT, f"output_{along}": its.AT}
    return unit(
        f"{name(tiles)} fp32_split, points {points}, {config}",
        constants,
        programs,
        ("nested/kernel",),
        ("filter_rows", "filter_columns"),
    )
