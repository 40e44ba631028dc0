"""winolab's own kernels on CuPy's arrays, by the algorithm that is asked for."""

from __future__ import annotations

from typing import Any

import cupy as cp  # pyright: ignore[reportMissingImports]  # noqa: F401  # arrays that judge takes

import winolab


def direct(x, w, stride=(1, 1), padding: Any = (0, 0), dilation=(1, 1), groups=1):
    """Direct products in FP32."""
    return winolab.conv_forward(x, w, stride=stride, padding=padding, dilation=dilation,
                                groups=groups, algorithm="direct")  # fmt: skip
