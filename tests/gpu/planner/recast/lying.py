"""Arrays that lie anywhere."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided


def lying(values: np.ndarray, strides: tuple[int, ...], first: int = 0) -> np.ndarray:
    """The numbers at these strides, ``first`` elements from a VECTOR; between them no number."""
    reach = sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True))
    memory = np.full(reach + first + 32, np.nan, values.dtype)
    start = -(memory.ctypes.data // values.itemsize) % (16 // values.itemsize) + first
    steps = [s * values.itemsize for s in strides]
    placed = as_strided(memory[start:], values.shape, steps)
    placed[...] = values
    return placed
