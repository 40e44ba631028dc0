"""What the reference and the kernels both ask of arrays: where they lie, what their dtypes hold."""

from __future__ import annotations

from typing import Any

import numpy as np

CUDA = 2  # DLPack's number of the device type
FLOAT16_INFINITE = 65520.0  # rounded to float16: halfway between its largest number and 2¹⁶


def on_gpu(value: Any) -> bool:
    """Whether the array lives on a CUDA device."""
    if isinstance(value, np.ndarray):
        return False
    if hasattr(value, "is_cuda"):
        return value.is_cuda
    if hasattr(value, "__cuda_array_interface__"):
        return True
    return hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] == CUDA


def dtype_of(wish: Any) -> np.dtype[Any]:
    """The dtype that a caller wishes, NumPy's, torch's or a name. Raises TypeError for others."""
    name = str(wish)
    try:
        return np.dtype(name.removeprefix("torch.") if name.startswith("torch.") else wish)
    except (TypeError, ValueError, KeyError):
        raise TypeError(f"out_dtype is {wish!r}; expected a dtype, such as 'float32'") from None


def check_float16(largest: float) -> None:
    """Raise ValueError where dw, of that largest finite magnitude, overflows float16."""
    if largest >= FLOAT16_INFINITE:
        raise ValueError(
            f"dw reaches {largest:.6g}, and float16 holds at most 65504: ask for out_dtype float32 "
            "or bfloat16, which hold it"
        )
