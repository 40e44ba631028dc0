"""Right kernels on a GPU, and ones that touch what lies beyond an array; only where CuPy is."""

from __future__ import annotations

from typing import Any

import cupy as cp  # pyright: ignore[reportMissingImports]

from experiments.judged.kernels_gpu import with_cupy

# What is read is dropped, and what is written is what was there.
TOUCH = """
extern "C" __global__ void touch(volatile float* at, int writes) {
  const float found = *at;
  if (writes) *at = found;
}
"""
right = with_cupy.right


def _touched(array: Any, element: int, writes: bool = False) -> None:
    if array.size and array.flags.c_contiguous:
        address = cp.uint64(array.data.ptr + element * array.itemsize)
        cp.RawKernel(TOUCH, "touch")((1,), (1,), (address, cp.int32(writes)))


def reads_beyond_x(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1):
    _touched(x, x.size)
    return right(x, w, stride, padding, dilation, groups)


def reads_before_x(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1):
    _touched(x, -1)
    return right(x, w, stride, padding, dilation, groups)


def reads_beyond_w(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1):
    _touched(w, w.size)
    return right(x, w, stride, padding, dilation, groups)


def writes_beyond_y(
    x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1, out=None
):
    assert out is not None
    out[...] = right(x, w, stride, padding, dilation, groups)
    _touched(out, out.size, writes=True)
    return out


def writes_beyond_new(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1):
    good = right(x, w, stride, padding, dilation, groups)
    y = cp.empty(good.shape, good.dtype)
    y[...] = good
    _touched(y, y.size + 16, writes=True)  # 64 bytes: whole lines are left behind the last number
    return y


def with_a_scratch(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1):
    """It takes a MiB beside its result, and is right."""
    scratch = cp.empty(1 << 18, cp.float32)
    scratch[:1] = 0
    return right(x, w, stride, padding, dilation, groups)


def within(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1, out=None):
    """It touches first and last elements, and is right."""
    assert out is not None
    out[...] = right(x, w, stride, padding, dilation, groups)
    for array in (x, w, out):
        _touched(array, 0)
        _touched(array, array.size - 1, writes=True)
    return out
