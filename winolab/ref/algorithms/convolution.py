"""Direct convolution in FP64 and its two gradients: the oracle, independent of the tiled engine.

Some rows of an image at a time, the windows along the last dimension are laid out as a matrix, and
a matrix product per remaining filter tap adds to the output in place. Padding, dilation and stride
take no memory of their own: only coordinates that some tap reads are laid out. The order of
summation inside a product is BLAS's. Every other arithmetic runs direct() through
winolab.ref.algorithms.winograd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.lib.stride_tricks import as_strided

from winolab.algorithm import Problem
from winolab.ref.algorithms.winograd import data_adjoint, filter_adjoint, group_slices, rotated

# Rows of a matrix product: its output then stays in a core's L2 cache for 64 to 512 channels.
ROWS = 1024


def forward(x: np.ndarray, w: np.ndarray, problem: Problem) -> np.ndarray:
    """y (N, *output, OC) in FP64 of x (N, *input, IC) and w (OC, *filter, IC/groups)."""
    return _forward(x, w, problem, (1,) * problem.ndim)


def backward_data(dy: np.ndarray, w: np.ndarray, problem: Problem) -> np.ndarray:
    """dx (N, *input, IC) in FP64 of dy (N, *output, OC) and w."""
    return _forward(dy, rotated(w, problem.groups), data_adjoint(problem), problem.stride)


def backward_filter(x: np.ndarray, dy: np.ndarray, problem: Problem) -> np.ndarray:
    """dw (OC, *filter, IC/groups) in FP64 of x and dy."""
    parts = [
        forward(x[..., i].swapaxes(0, -1), dy[..., o].swapaxes(0, -1), filter_adjoint(problem))
        for i, o in group_slices(problem)
    ]
    return np.concatenate([part.swapaxes(0, -1) for part in parts])


def _forward(x: np.ndarray, w: np.ndarray, problem: Problem, spread: tuple[int, ...]) -> np.ndarray:
    """y, where the elements of x lie ``spread`` apart in the problem's input, zeros between."""
    y = np.zeros(problem.y_shape)
    for inputs, outputs in group_slices(problem):
        _accumulate(x[..., inputs], w[outputs], problem, spread, y[..., outputs])
    return y


def _accumulate(
    x: np.ndarray, w: np.ndarray, problem: Problem, spread: tuple[int, ...], y: np.ndarray
) -> None:
    """Add one group's convolution to y, some rows of an image at a time."""
    taps = np.ascontiguousarray(np.moveaxis(w, 0, -1), dtype=np.float64)
    taps = taps.reshape(*problem.filter[:-1], -1, len(w))
    if not taps.size or not y.size:
        return
    step = max(1, ROWS // math.prod(problem.output[1:]))
    whole = [_Axis.of(problem, spread, d, range(problem.output[d])) for d in range(1, problem.ndim)]
    for first in range(0, problem.output[0], step):
        block = range(first, min(problem.output[0], first + step))
        axes = [_Axis.of(problem, spread, 0, block), *whole]
        for image, result in zip(x, y, strict=True):
            _products(_columns(image, axes), taps, axes, result[block.start : block.stop])


def _products(columns: np.ndarray, taps: np.ndarray, axes: list[_Axis], result: np.ndarray) -> None:
    """One matrix product a tap of the leading dimensions."""
    from scipy.linalg import get_blas_funcs

    (gemm,) = get_blas_funcs(("gemm",), dtype=np.float64)
    total = np.zeros((result[..., 0].size, result.shape[-1]))
    for tap in product(*(range(len(axis.at)) for axis in axes[:-1])):
        a = _taken(columns, [axis.at[t] for axis, t in zip(axes, tap, strict=False)])
        a = a.reshape(len(total), -1)
        # In Fortran's view: total.T += taps.T @ a.T, without a copy where rows are contiguous.
        gemm(1.0, taps[tap].T, a.T, beta=1.0, c=total.T, overwrite_c=1)
    result[...] = total.reshape(result.shape)


Places = slice | np.ndarray  # along an axis; evenly spaced ones as a slice, which copies nothing


@dataclass(frozen=True)
class _Axis:
    """What some outputs read along one dimension: coordinates of the input with its zeros.

    Those are no more than taps × outputs, however far apart padding, dilation and stride put them.
    """

    needed: int  # distinct coordinates
    filled: Places  # which of them are elements of the input
    source: Places  # which elements
    at: list[Places]  # a tap's coordinates, one an output
    windows: np.ndarray  # (outputs, taps): the same
    steps: tuple[int, int] | None  # between outputs and between taps, where these are even

    @classmethod
    def of(cls, problem: Problem, spread: tuple[int, ...], d: int, outputs: range) -> _Axis:
        taps = np.arange(problem.filter[d])[:, None] * problem.dilation[d]
        at = np.array(outputs) * problem.stride[d] + taps - problem.padding[d][0]
        first, last = int(at[0, 0]), int(at[-1, -1])
        steps = problem.stride[d] * (len(outputs) > 1), problem.dilation[d] * (len(taps) > 1)
        if last - first < at.size:
            needed, at = np.arange(first, last + 1), at - first
        else:
            needed, places = np.unique(at, return_inverse=True)
            at, steps = places.reshape(at.shape), None
        inside = (needed >= 0) & (needed < problem.input[d]) & (needed % spread[d] == 0)
        (filled,) = np.nonzero(inside)
        source = needed[filled] // spread[d]
        evenly = [_evenly(of_tap) for of_tap in at] if d < problem.ndim - 1 else []
        return cls(len(needed), _evenly(filled), _evenly(source), evenly, at.T, steps)


def _columns(image: np.ndarray, axes: list[_Axis]) -> np.ndarray:
    """(*coordinates, outputs, taps, IC): windows along the last dimension, zeros in their places.

    The leading dimensions have the coordinates that are needed of them.
    """
    rows = np.zeros((*(axis.needed for axis in axes), image.shape[-1]))
    filled = [axis.filled for axis in axes]
    if not all(isinstance(at, slice) for at in filled):
        filled = np.ix_(*(np.arange(axis.needed)[axis.filled] for axis in axes))
    rows[tuple(filled)] = _taken(image, [axis.source for axis in axes])
    at, steps, last = axes[-1].windows, axes[-1].steps, len(axes) - 1
    if steps is None:
        return rows.take(at, axis=last)
    *leading, step, channel = rows.strides
    shape = (*rows.shape[:last], *at.shape, rows.shape[-1])
    windows = as_strided(rows, shape, (*leading, *(n * step for n in steps), channel))
    return np.ascontiguousarray(windows)


def _evenly(indices: np.ndarray) -> Places:
    steps = np.diff(indices)
    if len(indices) == 0 or (steps != steps[:1]).any() or (steps[:1] < 1).any():
        return indices
    step = int(steps[0]) if len(steps) else 1
    return slice(int(indices[0]), int(indices[-1]) + 1, step)


def _taken(array: np.ndarray, places: Sequence[Places]) -> np.ndarray:
    """What lies at these places of each leading axis, a view where all are slices."""
    if all(isinstance(at, slice) for at in places):
        return array[tuple(places)]
    for axis, at in enumerate(places):
        array = array[(slice(None),) * axis + (at,)]
    return array
