"""The translation unit of Ωα(n,r) on Tensor Cores: its constants, programs and files."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache

from winolab.algorithm import Tile
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.wgrad import TYPES
from winolab.gpu.families.wgrad_winograd.config import Config
from winolab.gpu.families.wgrad_winograd.tiling import SCALING
from winolab.gpu.planner.request import DTYPES
from winolab.ref.algebra.transforms import Matrix, transforms
from winolab.ref.error.metrics import ADMISSIBLE, error_ratio

ACCURATE = 10  # the largest minimal alpha whose split products are as accurate as FFMA's


@lru_cache(maxsize=256)
def accurate(tile: Tile, points: str) -> bool:
    """Whether split products, with sums and AT in FP32, are as accurate as FFMA's."""
    small = tile.minimal or error_ratio(tile, points) > ADMISSIBLE
    return tile.alpha <= ACCURATE or not small


@lru_cache(maxsize=256)
def source(tile: Tile, points: str, precision: str, out_dtype: str, config: Config) -> str:
    """The translation unit of one config: the transforms, the products and the finish."""
    made = transforms(tile.n, tile.r, points, SCALING)
    programs = made.programs
    wide = precision == "fp32_split" and not accurate(tile, points)
    constants = {
        "N": tile.n,
        "R": tile.r,
        "ALPHA": tile.alpha,
        "INPUT": TYPES[DTYPES[precision]],
        "OUTPUT": TYPES[out_dtype],
        "PARTS": 2 if precision == "fp32_split" else 1,
        **{name.upper(): value for name, value in asdict(config).items()},
    }
    return unit(
        f"Ω{tile.alpha}({tile.n},{tile.r}) {precision}, points {points}, {config}",
        constants,
        {
            "transform_filter": programs.G,
            "transform_input": programs.BT,
            "transform_output": programs.AT,
        },
        ("wgrad_winograd/kernel",),
        ("transform_output",) if wide else (),
        {
            "PRODUCTS_FILE": f"{config.products}.cuh",
            "SUMS_FILE": "sums_fp64.cuh" if wide else "sums.cuh",
        },
        {"REACH": f"{{{_reach(made.AT, made.BT)}, {_reach(made.AT, made.G)}}}"},
    )


def _reach(at: Matrix, other: Matrix) -> str:
    """How far the square of what each state loses reaches a tap, on average: AT's squares, times
    those of the other operand's transform, of whose elements the same is expected; in C."""
    outputs = [sum(float(row[s]) ** 2 for row in at) / len(at) for s in range(len(at[0]))]
    inputs = [sum(float(v) ** 2 for v in row) for row in other]
    products = (float(f"{a * b:.8g}") for a, b in zip(outputs, inputs, strict=True))
    return f"{{{', '.join(f'{product}f' for product in products)}}}"
