"""Im2col-Winograd as a kind."""

from __future__ import annotations

from collections.abc import Iterator

from winolab.algorithm import Algorithm, Problem, gamma
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
    """Eight states, where they serve the filter's width."""
    width = problem.filter[-1]
    if problem.unit and direction != "backward_filter" and 2 <= width <= 7:
        yield gamma(8, 9 - width, width)
