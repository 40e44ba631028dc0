"""A direct convolution of Triton, of arrays in any memory order; only where Triton is."""

from __future__ import annotations

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

from winolab.problem import Problem

BLOCK = 128
SIZES = ["count", "H", "W", "K", "R", "S", "OH", "OW", "SH", "SW", "PH", "PW", "LH", "LW", "CG",
         "KG", "xn", "xc", "xh", "xw", "wk", "wc", "wr", "ws"]  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def _conv(
    x, w, y, count, H, W, K, R, S, OH, OW, SH, SW, PH, PW, LH, LW, CG, KG,
    xn, xc, xh, xw, wk, wc, wr, ws, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ow, oh = at % OW, at // OW % OH
    k, n = at // (OW * OH) % K, at // (OW * OH * K)
    acc = tl.zeros((BLOCK,), tl.float32)
    for j in range(R * S * CG):
        c, s, r = j % CG, j // CG % S, j // CG // S
        h, v = oh * SH - PH + r * LH, ow * SW - PW + s * LW
        inside = (at < count) & (h >= 0) & (h < H) & (v >= 0) & (v < W)
        a = tl.load(x + n * xn + (k // KG * CG + c) * xc + h * xh + v * xw, inside, 0.0)
        b = tl.load(w + k * wk + c * wc + r * wr + s * ws, at < count, 0.0)
        acc += a * b
    tl.store(y + at, acc, at < count)


def conv(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1):
    """Channels first."""
    if any(not isinstance(p, int) for p in padding):
        raise ValueError("both ends are padded alike")
    n, c, height, width = x.shape
    k, _, r, s = w.shape
    p = Problem.of((n, height, width, c), (k, r, s, c // groups), stride=stride, padding=padding,
                   dilation=dilation, groups=groups)  # fmt: skip
    y = torch.empty((n, k, *p.output), dtype=x.dtype, device=x.device)
    if y.numel():
        launched: Any = _conv
        launched[(triton.cdiv(y.numel(), BLOCK),)](
            x, w, y, y.numel(), height, width, k, r, s, *p.output, *stride, *padding, *dilation,
            c // groups, k // groups, *x.stride(), *w.stride(), BLOCK=BLOCK,
        )  # fmt: skip
    return y
