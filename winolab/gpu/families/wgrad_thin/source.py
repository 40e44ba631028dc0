"""The translation unit of thin layers' filter gradients: constants and file."""

from __future__ import annotations

from functools import lru_cache

from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.wgrad import TYPES
from winolab.gpu.families.wgrad_thin.config import SLICES, SUMMED, SUMS_AT_ONCE, Config


@lru_cache(maxsize=256)
def source(v: Config, masked: bool, types: tuple[str, str]) -> str:
    """The translation unit of a config; ``masked``: as of Tiling; ``types``: of the operands and
    of the result."""
    constants = {"LANES": v.lanes, "V": v.vector, "POSITIONS": v.positions, "FEW": v.few}
    constants |= {"COLUMN_GROUPS": v.column_groups, "THREADS": v.threads, "RESIDENT": v.resident}
    constants |= {"MASKED": int(masked), "SUMMED_BYTES": SUMMED}
    constants |= {"SUMS_AT_ONCE": SUMS_AT_ONCE, "SLICES": SLICES}
    constants |= dict(zip(("INPUT", "OUTPUT"), (TYPES[t] for t in types), strict=True))
    return unit(f"wgrad_thin {v}", constants, {}, ("wgrad_thin/kernel",))
