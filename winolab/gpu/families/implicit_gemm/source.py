"""The translation unit of the implicit GEMM: its constants and files."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache

from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families import wgrad
from winolab.gpu.families.epilogue import constants as epilogue_constants
from winolab.gpu.families.implicit_gemm.config import ROLES, Config, sliced
from winolab.gpu.planner.request import ITEMSIZE

PRODUCTS = {"fp32": 0, "fp32_split": 1, "fp16": 2, "bf16": 2}  # as products.cuh has them


@lru_cache(maxsize=64)
def source(
    config: Config,
    direction: str,
    types: tuple[str, str, str],
    vectors: tuple[int, int],
    merged: tuple[int, int, int],
    segmented: bool = False,
    epilogue: Epilogue | None = None,
) -> str:
    """The translation unit of one config; ``types``: precision, dtypes of operands and result;
    ``merged``: groups of a block, channels and output channels of one; ``segmented``: the sum of a
    correlation is cut into segments."""
    precision, dtype, out_dtype = types
    role = ROLES[direction]
    constants = {name.upper(): value for name, value in asdict(config).items()}
    constants |= {"ROLE": role, "ROTATED": int(role == 1), "GRADIENT": int(role == 2)}
    constants["SEGMENTED"] = int(segmented)
    constants |= {"PRODUCTS": PRODUCTS[precision], "MERGED": int(merged[0] > 1), "FIRST": 0}
    constants |= {"INPUT": wgrad.TYPES[dtype], "OUTPUT": wgrad.TYPES[out_dtype]}
    constants |= {"XVEC": vectors[0], "WVEC": vectors[1]}
    constants["SHARED"] = config.shared_memory(role, ITEMSIZE[dtype])
    constants |= epilogue_constants(epilogue, out_dtype)
    files = ["implicit_gemm/kernel"]
    if config.producers:
        files = ["implicit_gemm/wgmma"]
        columns, depth = sliced(config, role, *merged)
        constants |= {"SLICE": columns, "SLICE_DEPTH": depth, "PATCH": merged[0] * merged[1]}
    files += ["split_k"] * (role == 2 or segmented) + ["implicit_gemm/fill"] * config.fill
    return unit(f"implicit GEMM {precision}, {config}", constants, {}, tuple(files))
