"""Direct convolution as a kind."""

from __future__ import annotations

from collections.abc import Iterator

from winolab.algorithm import Algorithm, Problem, direct
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
    """It, always."""
    yield direct()
