"""Direct convolution in FP64 and its two gradients: the oracle, independent of the tiled engine.

One image at a time, the windows along the last dimension are laid out as a matrix, and a matrix
product per remaining filter tap adds to the output in place. The order of summation inside a
product is BLAS's. Every other arithmetic runs direct() through winolab.ref.winograd.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.linalg import get_blas_funcs

from winolab.nouns import Problem
from winolab.ref.winograd import data_adjoint, filter_adjoint, group_slices

# Rows of a matrix product: its output then stays in a core's L2 cache for 64 to 512 channels.
ROWS = 1024


def forward(x: np.ndarray, w: np.ndarray, problem: Problem) -> np.ndarray:
    """y (N, *output, OC) in FP64 of x (N, *input, IC) and w (OC, *filter, IC/groups)."""
    y = np.zeros(problem.y_shape)
    for inputs, outputs in group_slices(problem):
        _accumulate(x[..., inputs], w[outputs], problem, y[..., outputs])
    return y


def backward_data(dy: np.ndarray, w: np.ndarray, problem: Problem) -> np.ndarray:
    """dx (N, *input, IC) in FP64 of dy (N, *output, OC) and w."""
    adjoint, dy, w = data_adjoint(problem, dy, w)
    return forward(dy, w, adjoint)


def backward_filter(x: np.ndarray, dy: np.ndarray, problem: Problem) -> np.ndarray:
    """dw (OC, *filter, IC/groups) in FP64 of x and dy."""
    parts = [
        forward(x[..., i].swapaxes(0, -1), dy[..., o].swapaxes(0, -1), filter_adjoint(problem))
        for i, o in group_slices(problem)
    ]
    return np.concatenate([part.swapaxes(0, -1) for part in parts])


def _accumulate(x: np.ndarray, w: np.ndarray, problem: Problem, y: np.ndarray) -> None:
    """Add one group's convolution to y, some rows of an image at a time."""
    taps = np.ascontiguousarray(np.moveaxis(w, 0, -1), dtype=np.float64)
    taps = taps.reshape(*problem.filter[:-1], -1, len(w))
    if not taps.size or not y.size:
        return
    out, inner = problem.output[0], math.prod(problem.output[1:])
    step = max(1, ROWS // inner)
    for image, result in zip(x, y, strict=True):
        windows = _windows(_padded(image, problem), problem)
        for first in range(0, out, step):
            block = slice(first, min(out, first + step))
            _products(windows, taps, problem, block, result[block])


def _products(windows, taps, problem: Problem, block: slice, result: np.ndarray) -> None:
    """One matrix product a tap of the leading dimensions, for a block of rows."""
    (gemm,) = get_blas_funcs(("gemm",), dtype=np.float64)
    outer = range(problem.ndim - 1)
    ranges = [(0, size) for size in problem.output[:-1]]
    if problem.ndim > 1:
        ranges[0] = (block.start, block.stop)
        low = block.start * problem.stride[0]
        high = (block.stop - 1) * problem.stride[0] + problem.extent[0]
    else:
        low, high = block.start, block.stop
    columns = np.ascontiguousarray(windows[low:high])
    columns = columns.reshape(*columns.shape[:-2], -1)
    total = np.zeros((result[..., 0].size, result.shape[-1]))
    for tap in product(*(range(problem.filter[d]) for d in outer)):
        rows = []
        for d, t in zip(outer, tap, strict=True):
            start = ranges[d][0] * problem.stride[d] + t * problem.dilation[d]
            start -= low if d == 0 else 0
            count = ranges[d][1] - ranges[d][0]
            rows.append(
                slice(start, start + (count - 1) * problem.stride[d] + 1, problem.stride[d])
            )
        a = columns[tuple(rows)].reshape(len(total), -1)
        # In Fortran's view: total.T += taps.T @ a.T, without a copy where rows are contiguous.
        gemm(1.0, taps[tap].T, a.T, beta=1.0, c=total.T, overwrite_c=1)
    result[...] = total.reshape(result.shape)


def _padded(image: np.ndarray, problem: Problem) -> np.ndarray:
    """The image with its padding; a negative padding (of an adjoint problem) cuts."""
    cut = tuple(
        slice(max(0, -lo), size - max(0, -hi))
        for size, (lo, hi) in zip(problem.input, problem.padding, strict=True)
    )
    fill = [(max(0, lo), max(0, hi)) for lo, hi in problem.padding]
    return np.pad(image[cut].astype(np.float64, copy=False), [*fill, (0, 0)])


def _windows(image: np.ndarray, problem: Problem) -> np.ndarray:
    """A view (*outer inputs, last outputs, last taps, IC) of the windows along the last axis."""
    last = problem.ndim - 1
    windows = sliding_window_view(image, problem.extent[last], axis=last)
    windows = windows[..., :: problem.stride[last], :, :: problem.dilation[last]]
    return windows[..., : problem.output[last], :, :].swapaxes(-1, -2)
