"""What is picked of one kind, where another's kernels are faster."""

from __future__ import annotations

from typing import Any

from winolab.gpu.planner.fallback import PlanWithFallback
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.request import Request


def of_gamma(request: Request) -> Any:
    """The first plan whose transforms are within one kernel, of those that can be picked."""
    every: tuple[Any, ...] = candidates(request, near=True).plans
    return next(p for p in every if p.algorithm.kind == "gamma")


def looked_at(request: Request) -> Any:
    """The first plan whose results are looked at again, of those that can be picked."""
    return next(p for p in candidates(request, near=True).plans if isinstance(p, PlanWithFallback))
