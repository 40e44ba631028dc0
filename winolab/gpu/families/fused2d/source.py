"""The translation unit of the fused F(2×2, 3×3): its constants, transforms and layout."""

from __future__ import annotations

from functools import lru_cache

from winolab.algorithm import Tile
from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.epilogue import constants as epilogue_constants
from winolab.gpu.families.fused2d.config import Config
from winolab.ref.algebra.transforms import transforms

TILE = Tile(2, 3)


@lru_cache(maxsize=64)
def source(points: str, config: Config, epilogue: Epilogue | None = None) -> str:
    """The translation unit of one config."""
    made = transforms(TILE.n, TILE.r, points).programs
    return unit(
        f"fused F(2×2,3×3) fp32, points {points}, {config}",
        {
            "N": TILE.n,
            "R": TILE.r,
            "ALPHA": TILE.alpha,
            **config.constants(),
            **epilogue_constants(epilogue, "float32"),
        },
        {
            "transform_filter": made.G,
            "transform_input": made.BT,
            "transform_output": made.AT,
            "layout": config.staged,
        },
        ("fused2d/kernel",),
    )
