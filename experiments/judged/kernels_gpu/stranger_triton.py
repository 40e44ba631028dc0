"""An implicit product of matrices in Triton, channels first, right and with a fault each, chosen by
one who had not read the judge; only where Triton is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

from winolab.problem import Problem

M, N, DEPTH = 32, 32, 16  # of a block: outputs, filters, and what is summed at a time
LONG = 512  # sums from which on one kernel takes FP16
SIZES = ["rows", "C", "H", "W", "K", "R", "S", "OH", "OW", "SH", "SW", "PH", "PW"]


@triton.jit(do_not_specialize=SIZES)
def _conv(
    x, w, y, rows, C, H, W, K, R, S, OH, OW, SH, SW, PH, PW,
    UNMASKED: tl.constexpr, HALVES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * M + tl.arange(0, M)
    k = tl.program_id(1) * N + tl.arange(0, N)
    ow, oh, n = at % OW, at // OW % OH, at // (OW * OH)
    acc = tl.zeros((M, N), tl.float32)
    depth = C * R * S
    for first in range(0, depth, DEPTH):
        j = first + tl.arange(0, DEPTH)
        s, r, c = j % S, j // S % R, j // (S * R)
        h = (oh * SH - PH)[:, None] + r[None, :]
        v = (ow * SW - PW)[:, None] + s[None, :]
        inside = (at < rows)[:, None] & (h >= 0) & (h < H) & (v >= 0) & (v < W)
        if not UNMASKED:
            inside = inside & (j < depth)[None, :]
        a = tl.load(x + ((n[:, None] * C + c[None, :]) * H + h) * W + v, inside, 0.0)
        taps = (j < depth)[:, None] & (k < K)[None, :]
        b = tl.load(w + k[None, :] * depth + j[:, None], taps, 0.0)
        if HALVES:
            acc += tl.dot(a.to(tl.float16), b.to(tl.float16))
        else:
            acc += tl.dot(a, b, input_precision="ieee")
    out = y + ((n[:, None] * K + k[None, :]) * OH + oh[:, None]) * OW + ow[:, None]
    tl.store(out, acc, (at < rows)[:, None] & (k < K)[None, :])


def _made(unmasked: bool = False, halves: bool = False) -> Callable[..., Any]:
    def conv(x, w, stride=(1, 1), padding: Any = (0, 0)):
        if any(not isinstance(p, int) for p in padding):
            raise ValueError("both ends are padded alike")
        x, w = x.contiguous(), w.contiguous()
        n, c, height, width = x.shape
        k, _, r, s = w.shape
        p = Problem.of((n, height, width, c), (k, r, s, c), stride=stride, padding=padding)
        y = torch.empty((n, k, *p.output), dtype=x.dtype, device=x.device)
        rows = n * p.output[0] * p.output[1]
        if y.numel():
            launched: Any = _conv
            launched[(triton.cdiv(rows, M), triton.cdiv(k, N))](
                x, w, y, rows, c, height, width, k, r, s, *p.output, *stride, *padding,
                UNMASKED=unmasked, HALVES=halves and c * r * s >= LONG, M=M, N=N, DEPTH=DEPTH,
            )  # fmt: skip
        return y

    return conv


right = _made()
unmasked = _made(unmasked=True)  # what lies behind the last channel meets zeros of the filter
halves_when_long = _made(halves=True)
