"""NumPy arrays of a call: what they are computed in, and how the result is handed over."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from winolab.arrays import check_float16, on_gpu
from winolab.options import ConvOptions
from winolab.ref.arithmetic import Arithmetic, arithmetic

TEXTS = "SUMm"  # kinds of dtypes that hold no numbers: texts, and dates
# The precision of a dtype where the caller names none: FP32 accumulation for 16-bit data.
PRECISION_OF = {
    np.dtype(np.float64): "fp64",
    np.dtype(np.float32): "fp32",
    np.dtype(np.float16): "fp16",
    np.dtype(ml_dtypes.bfloat16): "bf16",
}


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of any array, of one that says it to other libraries only, too."""
    if hasattr(value, "shape") or not on_gpu(value):
        return np.shape(value)
    from winolab.gpu.arrays import CUPY

    return np.shape(CUPY.array("an operand", value))


def operand(name: str, value: Any, precision: str | Arithmetic | None) -> np.ndarray:
    """``value`` as an array of numbers. Raises TypeError for what has no precision of its own."""
    if hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray):
        raise TypeError(
            f"{name} is a {type(value).__module__} array on the CPU; pass it as a NumPy array to "
            "run the reference, or move it to a CUDA device to run the kernels"
        )
    _check_unmasked(name, value)
    array = np.asarray(value)
    if array.dtype.kind == "c":
        raise TypeError(f"{name} is complex; convolve the real and imaginary parts apart")
    if array.dtype.kind in "iuO" and precision is None:
        raise TypeError(
            f"{name} has dtype {array.dtype}, which has no precision of its own; "
            'pass precision="exact", or convert it to a floating-point dtype'
        )
    if array.dtype.kind in "b" + TEXTS:
        raise TypeError(f"{name} has dtype {array.dtype}; expected numbers")
    return array


def _check_unmasked(name: str, value: Any) -> None:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, whose mask nothing here heeds; pass its filled(0), or data"
        )


def arithmetic_of(precision: str | Arithmetic | None, *arrays: np.ndarray) -> Arithmetic:
    """What arrays are computed in: as asked, or by their dtype. Raises TypeError without one."""
    if precision is not None:
        return arithmetic("fp32" if precision == "fp32_ffma" else precision)
    dtypes = {a.dtype for a in arrays}
    if len(dtypes) > 1:
        raise TypeError(
            f"arrays of dtypes {' and '.join(sorted(map(str, dtypes)))}; "
            "convert one of them or pass precision"
        )
    dtype = dtypes.pop()
    if dtype not in PRECISION_OF:
        names = ", ".join(map(str, PRECISION_OF))
        raise TypeError(f"dtype {dtype} is not one of {names}; convert it or pass precision")
    return arithmetic(PRECISION_OF[dtype])


def hand_over(
    direction: str, y: np.ndarray, dtype: np.dtype, options: ConvOptions, out: Any
) -> np.ndarray:
    """The reference's result, channels last, in the caller's layout, dtype and array.

    Raises ValueError or TypeError for an ``out`` that does not hold it, ValueError for a dw that
    overflows float16 where on_range says so.
    """
    if options.layout == "channels_first":
        y = np.ascontiguousarray(np.moveaxis(y, -1, 1))
    _check_unmasked("out", out)
    if out is None:
        default = y.dtype if y.dtype == object or dtype.kind in "biu" else dtype
        out = np.empty(y.shape, dtype=default if options.out_dtype is None else options.out_dtype)
    elif not isinstance(out, np.ndarray):
        raise TypeError(f"out is a {type(out).__name__}; expected a NumPy array")
    elif out.shape != y.shape:
        raise ValueError(f"out has shape {out.shape}; expected an array of shape {y.shape}")
    if out.dtype.kind in TEXTS:
        raise TypeError(f"out has dtype {out.dtype}; expected numbers")
    if y.dtype != object and out.dtype.kind in "biu":
        raise TypeError(
            f"out has dtype {out.dtype} and the result is {y.dtype}; ask for a floating-point dtype"
        )
    if (direction, options.on_range) == ("backward_filter", "raise") and out.dtype == np.float16:
        sums = np.abs(y.astype(float))
        check_float16(float(sums.max(initial=0, where=np.isfinite(sums))))
    with np.errstate(over="ignore"):  # a narrower dtype overflows to infinity, as IEEE has it
        out[...] = y
    return out
