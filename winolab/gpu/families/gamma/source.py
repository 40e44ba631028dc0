"""The translation unit of Γ on Tensor Cores: its constants, programs and files."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from winolab.algorithm import Tile
from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families import scale
from winolab.gpu.families.epilogue import constants as epilogue_constants
from winolab.gpu.families.gamma import filter
from winolab.gpu.families.gamma.config import KC, PARTS, GammaConfig
from winolab.gpu.families.gamma.tiles import block_outputs
from winolab.gpu.planner.correlation import SCALING
from winolab.gpu.planner.request import DTYPES, ITEMSIZE
from winolab.ref.algebra.program import Program
from winolab.ref.algebra.transforms import transforms

WIDE = ("transform_filter",)  # in FP64 where products are split: what is small and done once


@lru_cache(maxsize=256)
def halvings(tile: Tile, points: str) -> tuple[int, int]:
    """How often FP16's input and filter are halved, so that none overflows transformed."""
    steps = scale.constants((tile, transforms(tile.n, tile.r, points, SCALING)))
    return steps["SCALE_INPUT"], steps["SCALE_FILTER"]


@lru_cache(maxsize=256)
def _scaled_ends(tile: Tile, points: str) -> tuple[Program, Program]:
    """BT with the scale of FP16's input, AT with what takes that and the filter's back."""
    programs = transforms(tile.n, tile.r, points, SCALING).programs
    of_x, of_w = halvings(tile, points)
    both = Fraction(2 ** (of_x + of_w))
    return programs.BT.scaled(Fraction(1, 2**of_x)), programs.AT.scaled(both)


@lru_cache(maxsize=256)
def source(
    tile: Tile,
    points: str,
    precision: str,
    out_dtype: str,
    config: GammaConfig,
    epilogue: Epilogue | None = None,
) -> str:
    """The translation unit of one config of Γα(n,r), its main kernel in the files it names."""
    parts = PARTS[precision]
    files = config.files(parts) | {"FILTER_FILE": filter.file(parts, config.clusters)}
    programs = transforms(tile.n, tile.r, points, SCALING).programs
    # The range of FP16 is narrow; what is split is scaled by what it holds.
    bt, at = _scaled_ends(tile, points) if precision == "fp16" else (programs.BT, programs.AT)
    return unit(
        f"Γ{tile.alpha}({tile.n},{tile.r}) {precision}, points {points}, {config}",
        _constants(tile, points, precision, out_dtype, config, epilogue),
        {"transform_filter": programs.G, "transform_input": bt, "transform_output": at},
        config.kernels,
        WIDE if parts == 2 else (),
        files,
        {"GAMMA_PARAMS": config.params},
    )


@lru_cache(maxsize=256)
def filter_source(
    tile: Tile, points: str, precision: str, out_dtype: str, config: GammaConfig
) -> str:
    """The translation unit of what transforms filters for such configs, and of scales."""
    parts = PARTS[precision]
    return unit(
        f"Γ{tile.alpha}({tile.n},{tile.r}) {precision}, points {points}, filter",
        _constants(tile, points, precision, out_dtype, config, None),
        {"transform_filter": transforms(tile.n, tile.r, points, SCALING).programs.G},
        (filter.file(parts, config.clusters).removesuffix(".cuh"),),
        WIDE if parts == 2 else (),
        lean=True,
    )


def _constants(
    tile: Tile,
    points: str,
    precision: str,
    out_dtype: str,
    config: GammaConfig,
    epilogue: Epilogue | None,
) -> dict[str, int]:
    """What all files of a unit are compiled with."""
    split, parts = precision == "fp32_split", PARTS[precision]
    made = transforms(tile.n, tile.r, points, SCALING)
    constants = {"N": tile.n, "R": tile.r, "ALPHA": tile.alpha, "KC": KC}
    constants |= {"BM": block_outputs(tile.alpha)}
    constants |= filter.constants(parts)
    constants |= {"PARTS": parts, "BF16": int(precision == "bf16")}
    constants |= {"WIDE": int(split), "WIDE_OUT": int(out_dtype == "float32")}
    constants |= scale.constants((tile, made)) | (scale.BLOCKS if split else {})
    size = ITEMSIZE[DTYPES[precision]]
    constants |= config.constants(tile, size)
    constants |= {"SHARED": config.shared_memory(tile, parts, size)}
    constants |= config.choices(parts)
    constants |= epilogue_constants(epilogue, out_dtype)
    return constants | {"BARE": made.programs.G.bare}
