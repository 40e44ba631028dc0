"""The translation unit of the fused kernel: its constants, transforms and layout."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from winolab.algorithm import Tile
from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families import wgrad
from winolab.gpu.families.epilogue import constants as epilogue_constants
from winolab.gpu.families.fused2d.config import Config
from winolab.ref.algebra.transforms import transforms

# Steps that are left out to see what they take, as block.cuh has them: producers' loads of x, the
# input transform's arithmetic, the output transform with its stores.
LEFT_OUT = {"loads": 1, "input transform": 2, "output transform": 4}
TILE, GRADIENT_TILE = Tile(2, 3), Tile(3, 2)


@lru_cache(maxsize=64)
def source(
    points: str,
    config: Config,
    types: tuple[str, str] = ("float32", "float32"),
    gradient: bool = False,
    epilogue: Epilogue | None = None,
    left_out: int = 0,
) -> str:
    """The translation unit of one config; ``types``: dtypes of the operands and of the result.

    ``left_out``: the sum of those LEFT_OUT whose time is asked. Results are wrong then, and no plan
    has such a source.
    """
    tile = GRADIENT_TILE if gradient else TILE
    made = transforms(tile.n, tile.r, points).programs
    several = config.split_k > 1
    shown = replace(config, split_k=2 if several else 0)  # of all numbers the kernel is the same
    return unit(
        f"fused F({tile.n}×{tile.n},{tile.r}×{tile.r}) {'→'.join(types)}, points {points}, {shown}",
        {
            "N": tile.n,
            "R": tile.r,
            "ALPHA": tile.alpha,
            "GRADIENT": int(gradient),
            "INPUT": wgrad.TYPES[types[0]],
            "OUTPUT": wgrad.TYPES[types[1]],
            "FIRST": 0,
            **config.constants(),
            **epilogue_constants(epilogue, types[1]),
            **({"LEFT_OUT": left_out} if left_out else {}),
        },
        {
            "transform_filter": made.G,
            "transform_input": made.BT,
            "transform_output": made.AT,
            "layout": config.staged,
        },
        ("fused2d/kernel", *["split_k"] * several),
    )
