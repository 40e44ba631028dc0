"""What CUDA arrays are computed in, and what dtype the result has."""

from __future__ import annotations

from typing import Any

from winolab.arguments.arrays import PRECISION_OF_DTYPE, dtype_of, precision_named
from winolab.arguments.values import nearest
from winolab.gpu.planner.request import ITEMSIZE, PRECISIONS
from winolab.gpu.runtime.arrays import Described

# Precisions of the dtypes that kernels read.
PRECISION_OF = {dtype: PRECISION_OF_DTYPE[dtype] for dtype in ITEMSIZE}


def common_dtype(names: tuple[str, ...], first: str, second: str) -> str:
    """The operands' dtype. Raises TypeError where they have two."""
    if first != second:
        raise TypeError(
            f"{names[0]} has dtype {first} and {names[1]} {second}; convert one of them"
        )
    return first


def result_dtype(direction: str, dtype: str, wish: Any, out: Described | None) -> str:
    """The result's dtype: that of ``out``, or as wished, or the operands'.

    Raises TypeError for one that the kernels do not write, or that could not hold dw.
    """
    wanted = dtype if wish is None else dtype_name(wish)
    if out is not None:
        if wish is not None and wanted != out.dtype:
            raise TypeError(f"out has dtype {out.dtype} and out_dtype is {wanted}; leave one out")
        wanted = out.dtype
    if wanted not in ITEMSIZE:
        raise TypeError(f"out_dtype {wanted}; the CUDA kernels write {', '.join(ITEMSIZE)}")
    if direction == "backward_filter" and wanted == "float16" != dtype:
        raise TypeError(
            f"dw in float16 holds at most 65504, which sums of {dtype} products exceed: ask for "
            "out_dtype float32 or bfloat16"
        )
    return wanted


def dtype_name(value: Any) -> str:
    """The name of a dtype of NumPy, CuPy or torch, or of its name.

    Raises TypeError for what is none, and for one of another byte order than the device's.
    """
    text = str(value).removeprefix("torch.")
    if text in ITEMSIZE:
        return text
    dtype = dtype_of(value)
    if not dtype.isnative:
        raise TypeError(f"out_dtype {dtype} has its bytes swapped; kernels write {dtype.name}")
    return dtype.name


def precision_of(wish: Any, name: str, dtype: str) -> str:
    """The planner's precision for arrays of that dtype.

    Raises TypeError for a dtype that the kernels do not read, ValueError for a precision that is
    unknown or not that of the arrays.
    """
    if dtype not in PRECISION_OF:
        raise TypeError(f"{name} has dtype {dtype}; the CUDA kernels read {', '.join(ITEMSIZE)}")
    own = PRECISION_OF[dtype]
    if wish is None:
        return own
    wish = precision_named(wish)
    wanted = getattr(wish, "name", wish)
    if wanted not in PRECISIONS:
        near = nearest(str(wanted), PRECISIONS)
        hint = f"; did you mean {near!r}?" if near else ""
        known = ", ".join(PRECISIONS)
        raise ValueError(f"precision {wanted!r}; the CUDA kernels have {known}{hint}")
    if wanted.partition("_")[0] != own:
        of = next(k for k, v in PRECISION_OF.items() if v == wanted.partition("_")[0])
        raise ValueError(f"precision {wanted} takes {of} arrays; {name} has dtype {dtype}")
    return wanted
