"""The translation unit of direct products whose copies walk positions."""

from __future__ import annotations

from functools import lru_cache

from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import TF32, unit
from winolab.gpu.families.epilogue import constants as epilogue_constants
from winolab.gpu.families.im2col.config import Config
from winolab.gpu.families.wgrad import TYPES
from winolab.gpu.planner.request import DTYPES


@lru_cache(maxsize=64)
def source(
    precision: str,
    out_dtype: str,
    v: Config,
    rank: int,
    rotated: bool,
    epilogue: Epilogue | None = None,
) -> str:
    """One config's unit: ``winolab_im2col``; ``rank``: dimensions of x's map."""
    constants = {
        "INPUT": TYPES[DTYPES[precision]],
        "OUTPUT": TYPES[out_dtype],
        "BF16": int(precision == "bf16"),
        "ROTATED": int(rotated),
        "RANK": rank,
        "BN": v.bn,
        "BM": v.bm,
        "STAGES": v.stages,
        "SPLIT_K": v.split_k,
        "BLOCKS": v.blocks,
        "SHARED": v.shared_memory,
        **epilogue_constants(epilogue, out_dtype),
        **({TF32: 1} if v.tf32 else {}),
    }
    return unit(f"Γ1(1,1) {precision}, {v}", constants, {}, ("im2col/kernel",))
