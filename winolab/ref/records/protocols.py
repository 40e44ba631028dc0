"""Errors of an algorithm in the protocols in which sets of points were published, and in ours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from winolab.algorithm import Gamma, Problem, tiled
from winolab.points import tile_of
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.formats import FORMAT_OF
from winolab.ref.arithmetic.simulated import arithmetic

# Formats that records are kept for; INT8 with a scale a state, which large tiles need.
PRECISIONS = ("fp32", "fp16", "bf16", "fp32_split", "int8:state")


@dataclass(frozen=True)
class Protocol:
    """Data uniform on [low, high), the shapes of a run, and the error that is told.

    ``tiles`` of F(n, r) along each of ``dimensions``; ``error`` is "rms", relative, "mare", or
    "mae", the mean absolute error of an output.
    """

    name: str
    what: str
    low: float
    error: str
    dimensions: int
    channels: int
    filters: int
    images: int
    tiles: int


PROTOCOLS = {
    p.name: p
    for p in (
        Protocol("u11", "relative RMS, U[-1,1), rows over 64 channels", -1, "rms", 1, 64, 16, 1, 8),
        Protocol(
            "u11x2", "relative RMS, U[-1,1), F(n×n,r×r) over 64 channels",
            -1, "rms", 2, 64, 16, 1, 2,
        ),
        Protocol("u12", "mean relative error, U[1,2), the same rows", 1.0, "mare", 1, 64, 16, 1, 8),
        Protocol(
            "1803.10986",
            "mean absolute error of an output, U[-1,1), F(n×n,r×r), one channel (Barabasz et al.)",
            -1.0, "mae", 2, 1, 16, 64, 1,
        ),
        Protocol(
            "2201.10369",
            "mean absolute error of an output, U[-1,1), F(n,r) along a row, one channel "
            "(Alam et al.)",
            -1.0, "mae", 1, 1, 16, 64, 8,
        ),
    )
}  # fmt: skip


def simulated(
    n: int, r: int, points: str, protocol: str, precision: str = "fp32", seeds: int = 5
) -> list[float]:
    """The error of F(n, r) at these points, a number a seed: 0, 1, and so on.

    Data of 16 bits are rounded to their format first; transforms and sums are FP32.

    >>> direct, = simulated(1, 3, "paper", "u11", seeds=1)
    >>> winograd, = simulated(4, 3, "paper", "u11", seeds=1)
    >>> direct < winograd < 10 * direct
    True
    """
    how = PROTOCOLS[protocol]
    tile = tile_of(n, r, points)
    algorithm = Gamma((tile,), points) if how.dimensions == 1 else tiled((tile, tile), points)
    run, found = arithmetic(precision), []
    kind = next((d for d, of in FORMAT_OF.items() if of.name == precision), np.dtype(np.float32))
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        size = how.tiles * n + r - 1
        problem = Problem.of(
            (how.images, *[size] * how.dimensions, how.channels),
            (how.filters, *[r] * how.dimensions, how.channels),
        )
        x, w = (
            rng.uniform(how.low, how.low + (2 if how.low < 0 else 1), shape).astype(kind)
            for shape in (problem.x_shape, problem.w_shape)
        )
        exact = convolution.forward(x, w, problem)
        error = np.abs(winograd.forward(x, w, problem, algorithm, run) - exact)
        if how.error == "rms":
            found.append(float(np.sqrt((error**2).mean() / (exact**2).mean())))
        else:
            found.append(float((error / abs(exact) if how.error == "mare" else error).mean()))
    return found
