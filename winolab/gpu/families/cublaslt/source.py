"""The translation unit of what adds up images' parts of a filter gradient."""

from __future__ import annotations

from functools import lru_cache

from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.wgrad import TYPES


@lru_cache(maxsize=8)
def source(out_dtype: str) -> str:
    """Write the unit that adds up sums in FP32 to a dw of this dtype."""
    constants = {"INPUT": TYPES["float32"], "OUTPUT": TYPES[out_dtype], "FIRST": 0}
    return unit("sums of images", constants, {}, ("elements", "split_k"))
