"""The translation unit of products of few positions: its constants and file."""

from __future__ import annotations

from functools import lru_cache

from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.epilogue import typed
from winolab.gpu.families.skinny.config import Config
from winolab.gpu.planner.request import DIRECTIONS


@lru_cache(maxsize=256)
def source(
    v: Config, direction: str, types: tuple[str, str], epilogue: Epilogue | None = None
) -> str:
    """The translation unit of a config; ``types``: of the operands and of the result."""
    constants = {"KIND": DIRECTIONS.index(direction), "ROWS": v.rows, "COLUMNS": v.columns}
    constants |= {"V": v.vector, "LANES": v.lanes, "SHARES": v.shares, "THREADS": v.threads}
    constants |= typed(types, epilogue)
    return unit(f"skinny {v}", constants, {}, ("skinny/kernel",))
