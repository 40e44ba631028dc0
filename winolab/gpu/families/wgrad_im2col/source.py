"""The translation unit of direct filter gradients whose copies walk positions."""

from __future__ import annotations

from functools import lru_cache

from winolab.gpu.codegen.emit import TF32, unit
from winolab.gpu.families.wgrad import TYPES
from winolab.gpu.families.wgrad_im2col.config import Config
from winolab.gpu.planner.request import DTYPES


@lru_cache(maxsize=64)
def source(precision: str, out_dtype: str, v: Config, rank: int) -> str:
    """One config's unit: ``winolab_wgrad_im2col``; ``rank``: dimensions of the maps."""
    constants = {
        "INPUT": TYPES[DTYPES[precision]],
        "OUTPUT": TYPES[out_dtype],
        "BF16": int(precision == "bf16"),
        "RANK": rank,
        "BO": v.bo,
        "BI": v.bi,
        "STAGES": v.stages,
        "SPLIT_K": v.split_k,
        "BLOCKS": v.blocks,
        "SHARED": v.shared_memory,
        **({TF32: 1} if v.tf32 else {}),
    }
    return unit(f"Ω2(1,1) {precision}, {v}", constants, {}, ("wgrad_im2col/kernel",))
