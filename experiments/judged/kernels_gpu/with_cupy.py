"""direct.cu on CuPy's arrays, right and with a fault each; only where CuPy is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import cupy as cp  # pyright: ignore[reportMissingImports]

from experiments.judged.kernels_gpu.sources import THREADS, source
from winolab.problem import Problem

_held: dict[Any, Any] = {}


@cache
def _kernel(macros: tuple[str, ...]) -> Any:
    return cp.RawKernel(source(*macros), "conv")


def _made(*macros: str, zeros: bool = False, aside: bool = False) -> Callable[..., Any]:
    """A function; ``zeros``: results begin as zeros; ``aside``: on a stream of its own, for which
    nobody waits."""

    def conv(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1):
        if any(not isinstance(p, int) for p in padding):
            raise ValueError("both ends are padded alike")
        p = Problem.of(x.shape, w.shape, stride=stride, padding=padding, dilation=dilation,
                       groups=groups)  # fmt: skip
        x, w = cp.ascontiguousarray(x), cp.ascontiguousarray(w)
        y = (cp.zeros if zeros else cp.empty)(p.y_shape, x.dtype)
        if not y.size:
            return y
        workspace = y
        if "STALE_WORKSPACE" in macros:
            if p not in _held:
                _held[p] = cp.zeros(p.y_shape, x.dtype)
            workspace = _held[p]
        sizes = (p.batch, *p.input, p.in_channels, p.out_channels, *p.filter, *p.output, *p.stride,
                 *padding, *p.dilation, p.groups)  # fmt: skip
        blocks = p.batch * p.output[0] * p.output[1] * (2 if "SPLIT" in macros else 1)
        grid = (blocks, p.groups)
        given = (x, w, y, workspace, *map(cp.int32, sizes))
        if aside:
            if "stream" not in _held:
                _held["stream"] = cp.cuda.Stream(non_blocking=True)
            with _held["stream"]:
                _kernel(macros)(grid, (THREADS,), given)
        else:
            _kernel(macros)(grid, (THREADS,), given)
        return y

    return conv


right = _made()
right_half = _made("HALF")
unwritten_tile = _made("UNWRITTEN_TILE")
off_by_one_pad = _made("OFF_BY_ONE_PAD")
race = _made("SPLIT", zeros=True)
missing_barrier = _made("MISSING_BARRIER")
tf32 = _made("TF32")
swallowed_nan = _made("SWALLOWED_NAN")
wrong_stream = _made(aside=True)
reads_outside = _made("READS_OUTSIDE")
stale_workspace = _made("STALE_WORKSPACE")
transposed_filter = _made("TRANSPOSED_FILTER")
overflow = _made("HALF", "HALF_SUMS")
