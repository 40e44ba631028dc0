"""What the planner has for a recast problem, some of its plans alone, whatever else is faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from winolab.gpu.planner.planner import Choice, candidates
from winolab.gpu.planner.request import Request

LONG = 1.0  # seconds that others take, who are to be beaten
Chosen = Callable[[Request, bool], Choice]


def of_kernel(name: str) -> Chosen:
    """Plans of kernels whose names begin so, where there are some."""

    def chosen(request: Request, near: bool) -> Choice:
        every = candidates(request)
        some = tuple(p for p in every.plans if p.kernel.startswith(name))
        return replace(every, plans=some or every.plans)

    return chosen


def with_filters(apart: bool) -> Chosen:
    """Those whose filter is made ready beforehand, where it is to be ``apart``; else all."""

    def chosen(request: Request, near: bool) -> Choice:
        every = candidates(request)
        return replace(every, plans=tuple(p for p in every.plans if p.prepared_size or not apart))

    return chosen
