"""CUDA source: a variant's constants, transforms printed from exact programs, the skeleton."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from winolab.gpu.plan import Variant
from winolab.nouns import Tile
from winolab.ref.transforms import transforms


@lru_cache(maxsize=256)
def emit(tile: Tile, points: str, variant: Variant) -> str:
    """The translation unit of one variant of Γα(n,r): ``winolab_filter`` and ``winolab_gamma``."""
    programs = transforms(tile.n, tile.r, points).programs
    constants = {"N": tile.n, "R": tile.r, "ALPHA": tile.alpha, **variant.constants()}
    parts = [
        f"// F({tile.n},{tile.r}), points {points}, {variant}",
        "\n".join(f"constexpr int {name} = {value};" for name, value in constants.items()),
        programs.G.cuda("transform_filter"),
        programs.BT.cuda("transform_input"),
        programs.AT.cuda("transform_output"),
        *(_kernel(name) for name in ("pipeline", "filter", "gamma")),
    ]
    return "\n\n".join(parts)


@lru_cache(maxsize=8)
def _kernel(name: str) -> str:
    return files("winolab.gpu").joinpath("kernels", f"{name}.cuh").read_text()
