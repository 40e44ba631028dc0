"""Nested Winograd convolution as a kind."""

from __future__ import annotations

from collections.abc import Iterator

from winolab.algorithm import Algorithm, Problem, winograd
from winolab.ref.kinds.tiled import (
    TILED,
    backward_data,
    backward_filter,
    bound,
    forward,
    predict,
    states,
    work,
)

__all__ = [
    "TILED",
    "backward_data",
    "backward_filter",
    "bound",
    "forward",
    "predict",
    "states",
    "usual",
    "work",
]


def usual(problem: Problem, direction: str) -> Iterator[Algorithm]:
    """Tiles of 2, 4 and 6 outputs of the whole filter, of up to 16 states."""
    for n in (2, 4, 6) if problem.unit else ():
        sizes = ((n,) * problem.ndim, problem.filter)
        if direction == "backward_filter":
            sizes = (problem.filter, (n,) * problem.ndim)
        if max(map(sum, zip(*sizes, strict=True))) <= 17:
            yield winograd(*sizes)
