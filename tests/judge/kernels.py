"""Kernels to judge: right ones of other libraries' functions, and ones with a fault each."""

from __future__ import annotations

import threading
import time
from typing import Any

import jax
import numpy as np
from scipy import signal

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


def scipy_conv(x, w, padding=(0, 0)):
    """scipy.signal.correlate, image by image."""
    (p, q) = padding
    if not isinstance(p, int):
        raise ValueError("both ends are padded alike")
    padded = np.pad(x, ((0, 0), (p, p), (q, q), (0, 0)))
    y = [
        [signal.correlate(image, taps, mode="valid", method="direct")[..., 0] for taps in w]
        for image in padded
    ]
    shape = [len(x), *(a - r + 1 for a, r in zip(padded.shape[1:3], w.shape[1:3], strict=True))]
    return np.moveaxis(np.array(y, x.dtype).reshape(shape[0], len(w), *shape[1:]), 1, -1)


def jax_conv(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1):
    """jax.lax.conv_general_dilated."""
    pads = [(p, p) if isinstance(p, int) else p for p in padding]
    return np.asarray(
        jax.lax.conv_general_dilated(
            x, w, stride, pads, rhs_dilation=dilation, feature_group_count=groups,
            dimension_numbers=("NHWC", "OHWI", "NHWC"), precision="highest",
        )
    )  # fmt: skip


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
        time.sleep(1e-4)
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
    threading.Timer(0.005, lambda: y.__setitem__(Ellipsis, good)).start()
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
    """All images are scaled by the largest number of the batch."""
    scale = np.float32(2.0**100) / max(np.abs(x).max(initial=0), np.float32(1e-30))
    quantized = np.round(x / np.abs(x).max(initial=1e-30) * 2**15) / 2**15
    del scale
    return exact((quantized * np.abs(x).max(initial=1e-30)).astype(x.dtype), w, padding=padding)


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
