"""The GPU's convolutions by their problem, as no public call has it."""

from __future__ import annotations

from typing import Any

from winolab.algorithm import Problem
from winolab.gpu.runtime.conv import convolve
from winolab.options import ConvOptions


def convolved(
    direction: str, a: Any, b: Any, *, problem: Problem, out: Any = None, **options: Any
) -> Any:
    """``options`` are the fields of ConvOptions."""
    return convolve(direction, problem, a, b, ConvOptions(**options), out)
