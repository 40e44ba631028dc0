"""The translation unit of grouped layers' filter gradients: constants and files."""

from __future__ import annotations

from functools import lru_cache

from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.wgrad import TYPES
from winolab.gpu.families.wgrad_grouped.config import Config, Span


@lru_cache(maxsize=256)
def source(v: Config, span: Span, held: int, stages: int, types: tuple[str, str]) -> str:
    """The translation unit of a config; ``held``: blocks of which a multiprocessor has registers;
    ``types``: of the operands and of the result."""
    constants = {"WARP_ROWS": v.warp_rows, "UNITS": v.units, "TAPS": v.taps, "RESIDENT": held}
    constants["STAGES"] = stages
    constants |= {"NT": span.tiles, "PIECES": span.pieces, "X_EIGHTS": span.slice_eights(v.units)}
    constants |= {"GROUP_IN": span.channels, "GROUP_OUT": span.out_channels, "FIRST": 0}
    constants |= dict(zip(("INPUT", "OUTPUT"), (TYPES[t] for t in types), strict=True))
    shape = f"warps={v.warp_rows} units={v.units} taps={v.taps}"
    return unit(f"wgrad_grouped {shape}", constants, {}, ("wgrad_grouped/kernel", "split_k"))
