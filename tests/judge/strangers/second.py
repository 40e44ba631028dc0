"""Kernels of NumPy as one who had not read the judge wrote them, with a fault each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

CHUNK = 16
_filters: dict[Any, np.ndarray] = {}


def conv(x, w, stride=(1, 1), padding: Any = (0, 0)):
    """A right one."""
    if any(not isinstance(p, int) for p in padding):
        raise ValueError("both ends are padded alike")
    x = np.pad(x, ((0, 0), *((p, p) for p in padding), (0, 0)))
    windows = sliding_window_view(x, w.shape[1:3], axis=(1, 2))[:, :: stride[0], :: stride[1]]
    return np.einsum("nhwcrs,krsc->nhwk", windows, w, dtype=x.dtype)


def remembers_filters(x, w, stride=(1, 1), padding: Any = (0, 0)):
    """By address and shape: other numbers written there are not seen."""
    key = w.ctypes.data, w.shape, w.strides
    if key not in _filters:
        _filters[key] = w.copy()
    return conv(x, _filters[key], stride, padding)


def knows_the_first_map(x, w, stride=(1, 1), padding: Any = (0, 0)):
    """What is made for filters has their first image's size in it, as compiled kernels may."""
    key = w.shape, stride, padding
    if key not in _filters:
        _filters[key] = np.array(x.shape[:3])
    y = conv(x, w, stride, padding)
    y[:, (_filters[key][1] + 2 * padding[0] - w.shape[1]) // stride[0] + 1 :] = 0
    return y


def whole_chunks(x, w, stride=(1, 1), padding: Any = (0, 0)):
    """With more images than a chunk has, those behind the last whole one are not written."""
    if len(x) <= CHUNK:
        return conv(x, w, stride, padding)
    chunks = [slice(n, n + CHUNK) for n in range(0, len(x) // CHUNK * CHUNK, CHUNK)]
    y = np.empty((len(x), *conv(x[:1], w, stride, padding).shape[1:]), x.dtype)
    for images in chunks:
        y[images] = conv(x[images], w, stride, padding)
    return y
