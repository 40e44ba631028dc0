"""Convolution and its gradients in FP64 on the GPU, tap by tap, and the errors of other results."""

from __future__ import annotations

from typing import Any

import numpy as np

from winolab.algorithm import Problem
from winolab.gpu import driver


def fp64(direction: str, problem: Problem, first: Any, second: Any) -> Any:
    """The exact products' FP64 sums of channels-last CuPy arrays, as a channels-last array.

    ``first`` and ``second`` are x and w forward, dy and w backward data, x and dy backward filter.
    """
    cp = driver.cupy()
    a, b = first.astype("float64"), second.astype("float64")
    p = problem
    edges = [(0, 0), *p.padding, (0, 0)]
    padded = cp.zeros([lo + n + hi for (lo, hi), n in zip(edges, p.x_shape, strict=True)])
    inside = tuple(slice(lo, lo + n) for (lo, _), n in zip(edges, p.x_shape, strict=True))
    if direction != "backward_data":
        padded[inside] = a
    result = cp.zeros(p.y_shape if direction == "forward" else p.w_shape)
    ic, oc = p.in_channels // p.groups, p.out_channels // p.groups
    for group in range(p.groups):
        ins, outs = slice(group * ic, (group + 1) * ic), slice(group * oc, (group + 1) * oc)
        for tap in np.ndindex(*p.filter):
            steps = zip(tap, p.output, p.stride, p.dilation, strict=True)
            window = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, n, s, d in steps)
            patch = (slice(None), *window, ins)
            weights = (outs, *tap)
            if direction == "forward":
                rows = padded[patch].reshape(-1, ic) @ b[weights].T
                result[..., outs] += rows.reshape(*p.y_shape[:-1], oc)
            elif direction == "backward_data":
                rows = a[..., outs].reshape(-1, oc) @ b[weights]
                padded[patch] += rows.reshape(*p.y_shape[:-1], ic)
            else:
                columns = padded[patch].reshape(-1, ic)
                result[weights] = b[..., outs].reshape(-1, oc).T @ columns
    return padded[inside] if direction == "backward_data" else result


def relative_rms(result: Any, exact: Any) -> float:
    """Root mean square of the errors over that of the exact values; NaN if any result is."""
    error = result.astype("float64") - exact
    return float(((error**2).mean() / (exact**2).mean()) ** 0.5)


def mean_relative(result: Any, exact: Any) -> float:
    """Mean of |error| / |exact|, for data whose results stay away from zero."""
    return float((abs(result.astype("float64") - exact) / abs(exact)).mean())
