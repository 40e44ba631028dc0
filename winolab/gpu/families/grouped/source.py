"""The translation unit of the kernel of grouped layers: its constants and file."""

from __future__ import annotations

from functools import lru_cache

from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.epilogue import typed
from winolab.gpu.families.grouped.config import Bundle, Config


@lru_cache(maxsize=256)
def source(
    v: Config,
    bundle: Bundle,
    chunks: tuple[int, bool],
    rotated: bool,
    types: tuple[str, str],
    epilogue: Epilogue | None = None,
) -> str:
    """The translation unit of a config; ``chunks``: how many a sum has, and whether some phases
    have fewer; ``types``: of the operands and of the result."""
    per_side = zip(("IN", "OUT"), bundle.eights, strict=True)
    constants = {"WARP_ROWS": v.warp_rows, "WARP_COLUMNS": v.warp_columns, "BUNDLES": v.bundles}
    constants |= {"TILES": v.tiles, "KEPT": v.kept, **dict(per_side)}
    constants |= {"CHANNELS": bundle.channels // bundle.groups}
    constants |= {"OUT_CHANNELS": bundle.out_channels // bundle.groups}
    constants |= {"CHUNKS": chunks[0], "PARTIAL": int(chunks[1]), "ROTATED": int(rotated)}
    constants |= typed(types, epilogue)
    shape = f"warps={v.warp_rows}x{v.warp_columns} bundles={v.bundles}"
    return unit(f"grouped {shape}", constants, {}, ("grouped/kernel",))
