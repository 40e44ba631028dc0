"""Convolutions of public libraries as functions that ``winolab judge`` calls, one a library.

Examples of wrappers: each passes on what its library has, raises ValueError for what it has not,
and computes nothing itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def _even(padding: Any) -> tuple[int, ...]:
    if any(not isinstance(p, int) for p in padding):
        raise ValueError("both ends are padded alike")
    return tuple(padding)


def mkldnn(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1):
    """oneDNN's convolution, as PyTorch calls it."""
    import torch

    a, b = (torch.from_numpy(np.moveaxis(v, -1, 1).copy()) for v in (x, w))
    y = torch.ops.aten.mkldnn_convolution(
        a.to_mkldnn(), b.to_mkldnn(), None, _even(padding), stride, dilation, groups
    )
    return np.moveaxis(y.to_dense().numpy(), 1, -1)


def unfold(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1)):
    """PyTorch's ``unfold`` (im2col) and a matrix product."""
    import torch

    a = torch.from_numpy(np.moveaxis(x, -1, 1).copy())
    b = torch.from_numpy(np.moveaxis(w, -1, 1).copy())
    pads = _even(padding)
    columns = torch.nn.functional.unfold(a, b.shape[2:], dilation, pads, stride)
    oh, ow = (
        (size + 2 * p - d * (r - 1) - 1) // s + 1
        for size, p, d, r, s in zip(a.shape[2:], pads, dilation, b.shape[2:], stride, strict=True)
    )
    y = b.reshape(len(b), -1) @ columns
    return np.moveaxis(y.reshape(len(a), len(b), oh, ow).numpy(), 1, -1)


def scipy_signal(x, w, padding: Any = (0, 0)):
    """``scipy.signal.correlate``, image by image."""
    from scipy import signal

    (p, q) = _even(padding)
    padded = np.pad(x, ((0, 0), (p, p), (q, q), (0, 0)))
    y = np.empty((len(x), len(w), *(
        a - r + 1 for a, r in zip(padded.shape[1:3], w.shape[1:3], strict=True)
    )), x.dtype)  # fmt: skip
    for n, image in enumerate(padded):
        for k, taps in enumerate(w):
            y[n, k] = signal.correlate(image, taps, mode="valid", method="direct")[..., 0]
    return np.moveaxis(y, 1, -1)


def scipy_ndimage(x, w):
    """``scipy.ndimage.correlate``, channel by channel, cut to where the filter fits."""
    from scipy import ndimage

    at = tuple(
        slice(r // 2, size - (r - 1) // 2)
        for size, r in zip(x.shape[1:3], w.shape[1:3], strict=True)
    )
    y = np.zeros((len(x), len(w), *(part.stop - part.start for part in at)), x.dtype)
    for n, image in enumerate(x):
        for k, taps in enumerate(w):
            for c in range(w.shape[-1]):
                y[n, k] += ndimage.correlate(image[..., c], taps[..., c], mode="constant")[at]
    return np.moveaxis(y, 1, -1)


def xla(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1):
    """JAX's ``lax.conv_general_dilated``, compiled by XLA."""
    import jax

    pads = [(p, p) if isinstance(p, int) else p for p in padding]
    return np.asarray(
        jax.lax.conv_general_dilated(
            x, w, stride, pads, rhs_dilation=dilation, feature_group_count=groups,
            dimension_numbers=("NHWC", "OHWI", "NHWC"), precision="highest",
        )
    )  # fmt: skip
