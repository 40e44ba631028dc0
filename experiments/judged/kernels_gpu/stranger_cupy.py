"""stranger.cu on CuPy's arrays, right and with a fault each; only where CuPy is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cupy as cp  # pyright: ignore[reportMissingImports]

from winolab.problem import Problem

FILE = Path(__file__).with_name("stranger.cu")
THREADS, BLOCKS = 128, 132 * 8
_held: dict[Any, Any] = {}


@cache
def _module(*macros: str) -> Any:
    return cp.RawModule(code="".join(f"#define {m}\n" for m in macros) + FILE.read_text())


def _made(*macros: str) -> Callable[..., Any]:
    def conv(x, w, stride=(1, 1), padding: Any = (0, 0)):
        if any(not isinstance(p, int) for p in padding):
            raise ValueError("both ends are padded alike")
        p = Problem.of(x.shape, w.shape, stride=stride, padding=padding)
        x, w = cp.ascontiguousarray(x), cp.ascontiguousarray(w)
        y = cp.empty(p.y_shape, x.dtype)
        if not y.size:
            return y
        defined = macros
        if "BAKED_IN" in macros:  # what is compiled is found by the filters alone
            baked = (f"INPUT_H {p.input[0]}", f"INPUT_W {p.input[1]}")
            defined = _held.setdefault((w.shape, stride, padding), baked)
        module = _module(*defined)
        sizes = (*p.input, p.in_channels, p.out_channels, *p.filter, *p.output, *p.stride, *padding)
        given = (cp.int64(y.size), *map(cp.int32, sizes))
        grid, scratch = (min(BLOCKS, -(-y.size // THREADS)),), y
        if "SCRATCH" in macros:  # one for all streams
            if _held.get("scratch", y[:0]).size < y.size:
                _held["scratch"] = cp.empty(y.size, x.dtype)
            scratch = _held["scratch"]
            module.get_function("first_half")(grid, (THREADS,), (x, w, scratch, *given))
        module.get_function("conv")(grid, (THREADS,), (x, w, y, scratch, *given))
        return y

    return conv


right = _made()
one_turn = _made("ONE_TURN")
one_scratch = _made("SCRATCH")
baked_in = _made("BAKED_IN")
