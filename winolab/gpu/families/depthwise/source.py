"""The translation unit of depthwise kernels: their constants and file."""

from __future__ import annotations

from functools import lru_cache

from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.depthwise.config import (
    THREADS,
    Config,
    Reach,
    ahead,
    chunk,
    vector_stored,
)
from winolab.gpu.families.depthwise.shape import Depthwise
from winolab.gpu.families.epilogue import constants as epilogue_constants
from winolab.gpu.planner.request import ITEMSIZE

TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}  # as the kernels name them


@lru_cache(maxsize=256)
def source(
    file: str,
    v: Config,
    gradient: bool,
    shape: tuple[int, ...] | None,
    how: tuple[bool, bool, bool],
    types: tuple[int, int],
    epilogue: Epilogue | None = None,
) -> str:
    """The translation unit of a config, its main kernel in ``file``.

    ``shape``: taps and strides, where it has those as constants; ``how``: whether taps go
    backwards, dy is gathered, columns slide; ``types``: of the operands and of the result.
    """
    constants = {"LANES": v.lanes, "V": v.vector, "TW": v.columns, "THREADS": THREADS}
    constants |= {"STAGES": v.stages}
    constants |= {"INPUT": types[0], "OUTPUT": types[1]}
    if shape:
        constants |= dict(zip(("KD", "KH", "KW", "SH", "SW"), shape, strict=True))
        constants["ROTATED"] = int(how[0])
    else:
        constants |= dict(zip(("ROTATED", "GATHER", "SLIDE"), map(int, how), strict=True))
    if v.stages:
        constants |= {"STRIPS": v.strips, "GROUP": v.group, "GRADIENT": int(gradient)}
        constants["SCATTER"] = int(v.kind == "scatter")
    dtype = next(name for name, number in TYPES.items() if number == types[1])
    constants |= epilogue_constants(epilogue, dtype)
    return unit(f"depthwise {v}", constants, {}, (f"depthwise/{file}",))


@lru_cache(maxsize=256)
def planes_source(
    file: str, v: Config, d: Depthwise, types: tuple[str, str], epilogue: Epilogue | None = None
) -> str:
    """That of a config of planes; ``types``: dtypes of the operands and of the result."""
    down, along = Reach.of(d, 1, v.rows, chunk(d)), Reach.of(d, 2, v.columns, d.filter[2])
    itemsize, out_itemsize = (ITEMSIZE[t] for t in types)
    if file == "filter_planes":
        out_itemsize = itemsize  # dy's
    constants = {"THREADS": THREADS, "V": v.vector, "VS": vector_stored(d, v, out_itemsize)}
    constants |= {"TW": v.columns, "ROWS": v.rows, "AHEAD": ahead(d, v, itemsize)}
    constants |= {"KH": d.filter[1], "KW": d.filter[2], "CHUNK": chunk(d)}
    constants |= {"SH": d.stride[1], "SW": d.stride[2], "DH": d.dilation[1], "DW": d.dilation[2]}
    constants |= {"REST_ROW": down.rest, "REST_COLUMN": along.rest}
    constants |= {"OFFSET": along.begin % v.vector, "MULTIPLIER": d.multiplier}
    constants |= {"ROTATED": int(d.rotated), "GATHER": int(d.gathered)}
    constants |= {"INPUT": TYPES[types[0]], "OUTPUT": TYPES[types[1]]}
    constants |= epilogue_constants(epilogue, types[1])
    return unit(f"depthwise {v}", constants, {}, (f"depthwise/{file}",))
