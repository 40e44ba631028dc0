"""The translation unit of Γα(n,r) on FFMA units: its constants, programs and file."""

from __future__ import annotations

from functools import lru_cache

from winolab.algorithm import Tile
from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.epilogue import constants as epilogue_constants
from winolab.gpu.families.gamma_ffma.config import Config
from winolab.ref.algebra.transforms import transforms


@lru_cache(maxsize=256)
def source(
    tile: Tile,
    points: str,
    config: Config,
    alone: bool = True,
    epilogue: Epilogue | None = None,
) -> str:
    """The translation unit of one config of Γα(n,r); unless ``alone`` behind another's."""
    made = transforms(tile.n, tile.r, points).programs
    kernels = ("gamma_ffma/kernel",) if alone else ("gamma_ffma/fallback_kernel",)
    if alone and not config.fused:
        kernels = ("gamma_ffma/filter", *kernels)
    return unit(
        f"F({tile.n},{tile.r}), points {points}, {config}",
        {
            "N": tile.n,
            "R": tile.r,
            "ALPHA": tile.alpha,
            **config.constants(),
            **epilogue_constants(epilogue, "float32"),
        },
        {
            "transform_filter": made.G,
            "transform_input": made.BT,
            "transform_output": made.AT,
        },
        kernels,
        # With moduli beyond points a tile has more states than inputs.
        macros={
            "GAMMA_PARAMS": "GammaFfmaParams",
            "INPUTS": "ALPHA" if tile.minimal else "(N + R - 1)",
        },
    )
