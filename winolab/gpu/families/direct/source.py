"""The translation units of direct products: their constants and files."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache

from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families import scale
from winolab.gpu.families.direct.config import Config
from winolab.gpu.families.epilogue import constants as epilogue_constants
from winolab.gpu.planner.request import DTYPES


@lru_cache(maxsize=64)
def source(
    precision: str,
    wide: bool,
    config: Config,
    rotated: bool,
    rest: int,
    strided: bool,
    epilogue: Epilogue | None = None,
) -> str:
    """The translation unit of one config; ``wide``: results in FP32; ``rest``: DirectPlan's."""
    constants = {"BF16": int(precision == "bf16"), "ROTATED": int(rotated), "REST": rest}
    constants |= {"WIDE_OUT": int(wide), "STRIDED": int(strided), "SPLIT": 0}
    constants |= epilogue_constants(epilogue, "float32" if wide else DTYPES[precision])
    return made(f"Γ1(1,1) {precision}", config, constants, "direct/kernel")


@lru_cache(maxsize=64)
def split_source(config: Config, rotated: bool, strided: bool) -> str:
    """The translation unit of one config."""
    constants = {"ROTATED": int(rotated), "STRIDED": int(strided), "SPLIT": 1}
    constants |= {"WIDE_OUT": 1, "BF16": 0, "N": 1}
    constants |= scale.constants() | scale.BLOCKS | {"SHARED": config.split_shared_memory}
    return made("Γ1(1,1) fp32_split", config, constants, "direct/split")


@lru_cache(maxsize=2)
def ffma_source(rotated: bool, epilogue: Epilogue | None = None) -> str:
    """The translation unit of forward or of backward data."""
    constants = {"ROTATED": int(rotated), **epilogue_constants(epilogue, "float32")}
    return unit("direct fp32 on FFMA units", constants, {}, ("direct/ffma",))


def made(name: str, config: Config, constants: dict[str, int], file: str) -> str:
    """The translation unit of a config, with further constants."""
    own = {name.upper(): value for name, value in asdict(config).items()}
    own |= {"SHARED": config.shared_memory} | constants
    return unit(f"{name}, {config}", own, {}, (file,))
