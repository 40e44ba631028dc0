"""The translation unit of kernels of thin layers: their constants and file."""

from __future__ import annotations

from functools import lru_cache

from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.epilogue import typed
from winolab.gpu.families.thin.config import THREADS, Config


@lru_cache(maxsize=256)
def source(
    v: Config,
    rotated: bool,
    single: bool,
    types: tuple[str, str],
    epilogue: Epilogue | None = None,
) -> str:
    """The translation unit of a config; ``single``: of filters of one tap; ``types``: of the
    operands and of the result."""
    constants = {"LANES": v.lanes, "V": v.vector, "POSITIONS": v.positions, "FEW": v.few}
    constants |= {"THREADS": THREADS, "ROTATED": int(rotated), "SINGLE": int(single)}
    constants |= typed(types, epilogue)
    return unit(f"thin {v}", constants, {}, (f"thin/{v.kind}",))
