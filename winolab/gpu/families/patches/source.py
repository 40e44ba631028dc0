"""The translation unit of products of patches: its constants and file."""

from __future__ import annotations

from functools import lru_cache

from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.epilogue import typed
from winolab.gpu.families.patches.config import Config, pixel, vector


@lru_cache(maxsize=256)
def source(
    v: Config,
    channels: int,
    how: tuple[bool, bool],
    types: tuple[str, str],
    epilogue: Epilogue | None = None,
) -> str:
    """The translation unit of a config, of so many channels; ``how``: whether pairs begin with odd
    elements, and whether some are masked; ``types``: of the operands and of the result."""
    constants = {"ROWS": v.rows, "COLUMNS": v.columns, "WIDTH": v.width, "TILES": v.tiles}
    constants |= {"BLOCKS": v.blocks, "CHANNELS": channels}
    constants |= {"VECTOR": vector(channels), "PIXEL": pixel(channels)}
    constants |= dict(zip(("ODD", "MASKED"), map(int, how), strict=True))
    constants |= typed(types, epilogue)
    return unit(f"patches {v}", constants, {}, ("patches/kernel",))
