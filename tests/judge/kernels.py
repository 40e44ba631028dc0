"""Kernels to judge: right ones of other libraries' functions, and ones with a fault each."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np

from winolab.problem import Problem
from winolab.ref.algorithms import convolution

STATE: dict[Any, Any] = {}


def exact(x: np.ndarray, w: np.ndarray, **geometry: Any) -> np.ndarray:
    """The exact sums, rounded once."""
    problem = Problem.of(x.shape, w.shape, **geometry)
    with np.errstate(all="ignore"):
        wide = convolution.forward(x.astype(float), w.astype(float), problem)
        return wide.astype(x.dtype)


def right(x, w, stride=1, padding=0, dilation=1, groups=1):
    return exact(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)


def data_gradient(dy, w, input_shape, stride=1, padding=0, dilation=1, groups=1):
    p = Problem.of(input_shape, w.shape, stride=stride, padding=padding, dilation=dilation,
                   groups=groups)  # fmt: skip
    with np.errstate(all="ignore"):
        return convolution.backward_data(dy, w, p).astype(dy.dtype)


def filter_gradient(x, dy, filter_shape, stride=1, padding=0, dilation=1, groups=1):
    p = Problem.of(x.shape, filter_shape, stride=stride, padding=padding, dilation=dilation,
                   groups=groups)  # fmt: skip
    with np.errstate(all="ignore"):
        return convolution.backward_filter(x, dy, p).astype(dy.dtype)


# Ten faults of the issue.


def unwritten_tile(x, w, padding=0):
    y = np.empty_like(exact(x, w, padding=padding))
    good = exact(x, w, padding=padding)
    whole = y.shape[2] // 4 * 4  # the last tile is left out
    y[:, :, :whole] = good[:, :, :whole]
    return y


def off_by_one_pad(x, w, padding=(0, 0)):
    pads = [(p, p) if isinstance(p, int) else p for p in padding]
    moved = [(lo - 1, hi + 1) if lo else (lo, hi) for lo, hi in pads]
    return exact(x, w, padding=moved)


def race(x, w, padding=0):
    """Threads add parts of the channels into one array, without a lock."""
    y = np.zeros_like(exact(x, w, padding=padding))
    part = max(1, x.shape[-1] // 4)

    def add(of: slice) -> None:
        held = y.copy()
        time.sleep(1e-3 * np.random.default_rng().random())
        y[...] = held + exact(x[..., of], w[..., of], padding=padding)

    parts = [slice(c, c + part) for c in range(0, x.shape[-1], part)]
    threads = [threading.Thread(target=add, args=(s,)) for s in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return y


def unordered(x, w, padding=0):
    """Sums of a random order."""
    order = np.random.default_rng().permutation(x.shape[-1])
    y = np.zeros_like(exact(x, w, padding=padding))
    for c in order:
        y += exact(x[..., [c]], w[..., [c]], padding=padding)
    return y


def _rounded(v: np.ndarray) -> np.ndarray:
    bits = v.view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def tf32(x, w, padding=0):
    return exact(_rounded(x.copy()), _rounded(w.copy()), padding=padding)


def swallowed_nan(x, w, padding=0):
    return exact(np.nan_to_num(x), w, padding=padding)


def wrong_stream(x, w, padding=0):
    """The result is written after the call returned."""
    good = exact(x, w, padding=padding)
    y = np.empty_like(good)
    threading.Timer(0.02, lambda: y.__setitem__(Ellipsis, good)).start()
    return y


def reads_outside(x, w, padding=0):
    """The last position is read from one element behind the array, and NaN becomes 0."""
    y = exact(x, w, padding=padding)
    strides = (x.itemsize,)
    behind = np.lib.stride_tricks.as_strided(x[-1, -1, -1, -1:], (2,), strides)[1]
    if y.size:
        y[-1, -1, -1] += np.nan_to_num(behind)
    return y


def reads_outside_plainly(x, w, padding=0):
    y = exact(x, w, padding=padding)
    behind = np.lib.stride_tricks.as_strided(x[-1:, -1, -1, -1], (2,), (x.itemsize,))
    if y.size and x.size:
        y[-1, -1, -1] += 0 * behind[1]
    return y


def stale_workspace(x, w, padding=0):
    """A workspace is kept by shape and added to."""
    y = exact(x, w, padding=padding)
    held = STATE.setdefault((x.shape, w.shape), np.zeros_like(y))
    result = y + held[..., ::-1] * 0.5 if held.shape == y.shape else y
    STATE[x.shape, w.shape] = y
    return result


def transposed_filter(x, w, padding=0):
    return exact(x, np.ascontiguousarray(w[:, ::-1, ::-1]), padding=padding)


def overflow(x, w, padding=0):
    """Sums of FP16."""
    y = exact(x.astype(np.float32), w.astype(np.float32), padding=padding)
    half = x.shape[-1] // 2
    first = exact(
        x[..., :half].astype(np.float32), w[..., :half].astype(np.float32), padding=padding
    )
    with np.errstate(over="ignore"):
        lost = np.isfinite(first) & ~np.isfinite(first.astype(np.float16))
    y = y.astype(np.float16)
    y[lost] = np.inf
    return y


# Ten more.


def by_batch(x, w, padding=0):
    """All images are rounded to 15 bits of the largest number of the batch."""
    most = np.abs(x).max(initial=1e-30)
    return exact((np.round(x / most * 2**15) / 2**15 * most).astype(x.dtype), w, padding=padding)


def aligned_channels(x, w, padding=0):
    c = max(4, x.shape[-1] // 4 * 4)
    return exact(x[..., :c], w[..., :c], padding=padding)


def wide_result(x, w, padding=0):
    return exact(x.astype(np.float64), w, padding=padding)


def other_layout(x, w, padding=0):
    return np.moveaxis(exact(x, w, padding=padding), -1, 1)


def mutates(x, w, padding=0):
    y = exact(x, w, padding=padding)
    w *= 1.0000001
    return y


def cached_filter(x, w, padding=0):
    kept = STATE.setdefault(("filter", w.ctypes.data, w.shape), w.copy())
    return exact(x, kept, padding=padding)


def ignores_dilation(x, w, stride=1, padding=(0, 0), dilation=(1, 1)):
    r = [d * (t - 1) + 1 - t for d, t in zip(dilation, w.shape[1:3], strict=True)]
    pads = [(p, p) if isinstance(p, int) else p for p in padding]
    pads = [(lo, hi - more) for (lo, hi), more in zip(pads, r, strict=True)]
    return exact(x, w, stride=stride, padding=pads)


def half_sums(x, w, padding=0):
    """Sums in FP16, tap by tap."""
    y = np.zeros(exact(x, w, padding=padding).shape, np.float16)
    for c in range(x.shape[-1]):
        part = exact(
            x[..., [c]].astype(np.float32), w[..., [c]].astype(np.float32), padding=padding
        )
        with np.errstate(all="ignore"):
            y = (y + part.astype(np.float16)).astype(np.float16)
    return y


def needs_pixels(x, w, padding=0):
    y = exact(x, w, padding=padding)
    if y.shape[1:3] == (1, 1):
        y *= 0
    return y


def flushes(x, w, padding=0):
    y = exact(x, w, padding=padding)
    y[np.abs(y) < np.finfo(np.float32).tiny] = 0
    return y


def few_are_wrong(x, w, padding=0):
    y = exact(x, w, padding=padding)
    if y.shape[0] * y.shape[1] * y.shape[2] > 1 << 16:
        y.reshape(-1)[1 << 16] *= 1.00001
    return y


def one_buffer(x, w, padding=0):
    y = exact(x, w, padding=padding)
    held = STATE.setdefault(("buffer", y.shape), np.empty_like(y))
    held[...] = y
    return held


def contiguous_only(x, w, padding=0):
    """A padded array is read as if its rows lay behind each other."""
    flat = np.lib.stride_tricks.as_strided(x, (x.size,), (x.itemsize,)) if x.size else x
    return exact(flat.reshape(x.shape), w, padding=padding)


def writes_outside(x, w, padding=0, out=None):
    assert out is not None
    out[...] = exact(x, w, padding=padding)
    if out.size:
        np.lib.stride_tricks.as_strided(out[-1:, -1, -1, -1], (2,), (out.itemsize,))[1] = 7
    return out


def accepts_nothing(x, w, padding=0):
    raise NotImplementedError("not on Tuesdays")


def raises(x, w, padding=0):
    return exact(x, w, padding=padding)[:, [1 << 20]]


def one_workspace(x, w, padding=0):
    """Threads share a workspace."""
    y = exact(x, w, padding=padding)
    held = STATE.setdefault("workspace", np.empty(1 << 18, x.dtype))[: y.size].reshape(y.shape)
    held[...] = y
    return held.copy()


def leaks(x, w, padding=0):
    y = exact(x, w, padding=padding)
    STATE.setdefault("leaked", []).append(y.copy())
    return y


def seeds(x, w, padding=0):
    np.random.seed(0)  # noqa: NPY002
    return exact(x, w, padding=padding)


def first_is_wrong(x, w, padding=0):
    y = exact(x, w, padding=padding)
    return y if STATE.setdefault("calls", []).append(1) or len(STATE["calls"]) > 1 else 0 * y


def declines_later(x, w, padding=0):
    if STATE.setdefault("served", 0) == 3:
        raise ValueError("not again")
    STATE["served"] += 1
    return exact(x, w, padding=padding)


def saturates(x, w, padding=0):
    most = np.finfo(x.dtype).max
    y = exact(x, w, padding=padding)
    return np.where(np.isinf(y) & np.isfinite(x).all() & np.isfinite(w).all(), most, y)


def skips_zeros(x, w, padding=0):
    """Filters of zeros cost nothing, and pass no NaN on."""
    y = exact(x, w, padding=padding)
    y[..., ~w.any(axis=(1, 2, 3))] = 0
    return y


def slips(x, w, padding=0):
    """NumPy raises ValueError in it: no word on what it serves."""
    return exact(x, w, padding=padding) + np.zeros((len(x), 1, 1, 3), x.dtype)


def ends(x, w):
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(x, w):
    time.sleep(1e6)


# Kinds that someone planted who had not seen what is looked for.


def pruned_by_sum(x, w, padding=0):
    keep = w.sum(axis=(1, 2), keepdims=True) != 0
    return exact(x, np.where(keep, w, w.dtype.type(0)), padding=padding)


def ring(x, w, padding=0):
    """Results live in six buffers."""
    y = exact(x, w, padding=padding)
    buffers = STATE.setdefault(("ring", threading.get_ident(), y.shape), [])
    buffers.append(np.empty_like(y) if len(buffers) < 6 else buffers.pop(0))
    buffers[-1][...] = y
    return buffers[-1]


def small_offsets(x, w, dilation=(1, 1)):
    """Offsets of taps are kept in 16 bits."""
    row = x.shape[2] * x.shape[3]
    span = dilation[0] * (w.shape[1] - 1) * row + dilation[1] * (w.shape[2] - 1) * x.shape[3]
    return exact(x, w, dilation=dilation) * (2 if span > 0xFFFF else 1)


def flips_for_a_while(x, w, padding=0):
    """A filter that threads share is reversed meanwhile."""
    if not w.flags.writeable:
        raise ValueError("w is read only")
    w[...] = w[:, ::-1, ::-1].copy()
    time.sleep(1e-3)
    y = exact(x, np.ascontiguousarray(w[:, ::-1, ::-1]), padding=padding)
    w[...] = w[:, ::-1, ::-1].copy()
    return y
