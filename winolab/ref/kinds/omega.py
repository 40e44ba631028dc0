"""One Ω kernel of WinRS as a kind."""

from __future__ import annotations

from winolab.algorithm import Algorithm, Problem
from winolab.ref.kinds.winrs import (
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


def usual(problem: Problem, direction: str) -> tuple[Algorithm, ...]:
    """None: winrs chooses among them."""
    return ()
