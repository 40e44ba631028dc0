"""The translation units of direct filter gradients on wgmma: their constants and files."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache

from winolab.gpu.codegen.emit import unit
from winolab.gpu.families import scale
from winolab.gpu.families.direct_products import TILE
from winolab.gpu.families.wgrad import MINIMAL, TYPES
from winolab.gpu.families.wgrad_direct.chunks import CONSTANTS
from winolab.gpu.families.wgrad_direct.config import (
    ColumnsConfig,
    DirectConfig,
    NarrowConfig,
    SplitConfig,
)
from winolab.gpu.planner.request import DTYPES
from winolab.ref.algebra.transforms import transforms

Steps = tuple[tuple[int, int, int], tuple[int, int, int]]  # stride and dilation


@lru_cache(maxsize=64)
def columns_source(precision: str, out_dtype: str, config: ColumnsConfig, steps: Steps) -> str:
    """One config's translation unit: ``winolab_wgrad_direct_columns``, ``…_gather``."""
    types = {"INPUT": TYPES[DTYPES[precision]], "OUTPUT": TYPES[out_dtype]}
    types |= {"BF16": int(precision == "bf16")}
    return unit(
        f"Ω2(1,1) {precision}, {config}",
        constants(config, **types, **CONSTANTS, **named(steps)),
        {},
        ("wgrad_direct/columns",),
        macros=MINIMAL,
    )


@lru_cache(maxsize=64)
def narrow_source(precision: str, out_dtype: str, config: NarrowConfig) -> str:
    """One config's translation unit: ``winolab_wgrad_direct_narrow`` and ``winolab_reduce``."""
    types = {"INPUT": TYPES[DTYPES[precision]], "OUTPUT": TYPES[out_dtype]}
    types |= {"BF16": int(precision == "bf16")}
    return unit(
        f"Ω2(1,1) {precision}, {config}",
        constants(config, **types, FIRST=0),
        {},
        ("wgrad_direct/narrow",),
        macros=MINIMAL,
    )


@lru_cache(maxsize=64)
def split_source(config: SplitConfig, steps: Steps) -> str:
    """The translation unit of one config: scales, products, and the sums of parts."""
    types = {"INPUT": 0, "OUTPUT": 0, "PARTS": 2, "BF16": 0, "WIDE": 1, "YVEC": 4}
    return unit(
        f"Ω2(1,1) fp32_split, {config}",
        {
            **constants(config, **types, **CONSTANTS, **named(steps)),
            **scale.constants((TILE, transforms(TILE.n, TILE.r))),
            **scale.BLOCKS,
        },
        {},
        ("wgrad_direct/split",),
        macros=MINIMAL,
    )


def named(steps: Steps) -> dict[str, int]:
    """The constants of column_sweep.cuh that say how far apart what taps meet lies."""
    sides = ("DEPTH", "HEIGHT", "WIDTH")
    return {
        f"{what}_{side}": step
        for what, of in zip(("STRIDE", "DILATION"), steps, strict=True)
        for side, step in zip(sides, of, strict=True)
    }


def constants(config: DirectConfig, **more: int) -> dict[str, int]:
    """The constants of a translation unit: gradient_scheduler.cuh's without transforms, ``more``,
    the block shape.
    """
    fields = {name.upper(): value for name, value in asdict(config).items()}
    return {"R": 1, "ALPHA": 1, "WRAP": 0, **more, **fields}
