"""What the reference and the kernels both ask of arrays: where they lie, what their dtypes hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

CUDA = 2  # DLPack's number of the device type
FLOAT16_INFINITE = 65520.0  # rounded to float16: halfway between its largest number and 2¹⁶

# The precision of products that a dtype means: FP32 sums for 16-bit data.
PRECISION_OF_DTYPE = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
DTYPE_OF_PRECISION = {precision: dtype for dtype, precision in PRECISION_OF_DTYPE.items()}
ALIASES = {"double": "float64", "single": "float32", "half": "float16"}


class Dtype(Protocol):
    """What NumPy's and torch's dtypes have in common, for type checkers."""

    @property
    def itemsize(self) -> int: ...


DtypeLike = Dtype | type[Any]  # np.float32 and float are types


def precision_named(precision: Any) -> Any:
    """The precision that a dtype of NumPy, CuPy or torch means, or its name, also before the
    changed fields of an arithmetic, "float32,storage=fp16", and before an architecture,
    "float16@hopper". Other names and values are returned.

    Raises ValueError for "float", which is one dtype in NumPy and another in torch.
    """
    if isinstance(precision, str):
        name, comma, fields = precision.strip().partition(",")
    elif isinstance(precision, np.dtype) or precision is float or _is_scalar(precision):
        name, comma, fields = np.dtype(precision).name, "", ""
    elif type(precision).__module__ == "torch":
        name, comma, fields = str(precision), "", ""
    else:
        return precision
    if name == "float":
        raise ValueError("precision 'float' is fp64 in NumPy and fp32 in PyTorch; say which")
    name, at, architecture = name.removeprefix("torch.").partition("@")
    dtype = ALIASES.get(name, name)
    return PRECISION_OF_DTYPE.get(dtype, name) + at + architecture + comma + fields


def precision_of_shapes(precision: Any) -> Any:
    """The same, where there are shapes alone: None, which means the dtype of arrays, is fp32."""
    return precision_named("fp32" if precision is None else precision)


def _is_scalar(value: Any) -> bool:
    """Whether it is a scalar type of NumPy, as np.float32."""
    return isinstance(value, type) and issubclass(value, np.generic)


def flag(value: Any, name: str) -> bool:
    """True or False, Python's or NumPy's, as the argument ``name``. Raises TypeError for others."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} is {value!r}; expected True or False")
    return bool(value)


def on_gpu(value: Any) -> bool:
    """Whether the array lives on a CUDA device."""
    if isinstance(value, np.ndarray):
        return False
    if hasattr(value, "is_cuda"):
        return value.is_cuda
    if hasattr(value, "__cuda_array_interface__"):
        return True
    return hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] == CUDA


def dtype_of(wish: Any, name: str = "out_dtype") -> np.dtype[Any]:
    """The dtype that a caller wishes, NumPy's, torch's or a name, a precision's too ("fp16"), as
    the argument ``name``. Raises TypeError for others."""
    text = DTYPE_OF_PRECISION.get(str(wish), str(wish))
    try:
        named = text.startswith("torch.") or isinstance(wish, str)
        return np.dtype(text.removeprefix("torch.") if named else wish)
    except (TypeError, ValueError, KeyError):
        raise TypeError(f"{name} is {wish!r}; expected a dtype, such as 'float32'") from None


def check_target(shape: Sequence[int], strides: Sequence[int], itemsize: int = 1) -> None:
    """Raise ValueError where a result's array has elements that share memory, as a broadcast one.

    Strides are in the units of ``itemsize``.
    """
    axes = sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1)
    if 0 in shape or apart(axes, itemsize):
        return
    starts = np.zeros(1, np.int64)
    for stride, size in axes:
        starts = np.add.outer(starts, stride * np.arange(size)).reshape(-1)
    if (np.diff(np.sort(starts)) < itemsize).any():
        raise ValueError(
            "out has elements that share memory, as a broadcast array's; pass one whose elements "
            "lie apart, or none"
        )


def apart(axes: Iterable[tuple[int, int]], itemsize: int = 1) -> bool:
    """Whether every axis, shorter strides first, steps over all that those before it reach."""
    reach = itemsize
    for stride, size in axes:
        if stride < reach:
            return False
        reach += (size - 1) * stride
    return True


def check_float16(largest: float) -> None:
    """Raise ValueError where dw, of that largest magnitude, overflows float16.

    Infinite: where its sums overflow what they are computed in.
    """
    if largest == math.inf:
        raise ValueError(
            "dw's sums are infinite, whatever type holds them: scale x or dy down, or take a "
            "precision whose sums have more exponents"
        )
    if largest >= FLOAT16_INFINITE:
        raise ValueError(
            f"dw reaches {largest:.6g}, and float16 holds at most 65504: ask for out_dtype float32 "
            "or bfloat16, which hold it"
        )


def seen(shape: tuple[int, ...], first: bool | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of a contiguous array as the caller sees it: channels that lie last are
    moved behind the batch where ``first`` is true, those that lie there to the end where false."""
    strides = contiguous(shape)
    if first is None:
        return shape, strides
    last = len(shape) - 1
    order = (0, last, *range(1, last)) if first else (0, *range(2, last + 1), 1)
    return tuple(shape[i] for i in order), tuple(strides[i] for i in order)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a C-contiguous array."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
