"""Calls with a filter that was stacked, or transformed, beforehand, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.gpu import hosted


def by_kept_filter(p: Any, a: np.ndarray, b: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The plan's result in FP32, of that shape; raises where what lies around its filter, its
    workspace or its result is written to."""
    filters, beside = (hosted.Guarded((n,), "uint8") for n in (p.prepared_size, p.beside))
    y, kernels = hosted.Guarded(shape, "float32"), hosted.loaded(p)
    places = [v.array.ctypes.data for v in (filters, beside)]
    p.prepare(kernels, hosted.filter_view(b), places[0], 0)
    p.run(kernels, hosted.pixels_view(a), places[0], hosted.pixels_view(y.array), places[1], 0)
    for name, guarded in (("filter", filters), ("workspace", beside), ("result", y)):
        guarded.check(name)
    return y.array
