"""Plans on pixels that are one, whatever else is faster."""

from __future__ import annotations

from dataclasses import replace

from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.planner.planner import Choice, candidates
from winolab.gpu.planner.recast.merged import MergedPlan, merged
from winolab.gpu.planner.request import Request

LONG = 1.0  # seconds that others take, who are to be beaten


def planned(problem: Problem, direction: str, precision: str, apart: bool = False) -> MergedPlan:
    """The fastest plan on pixels that are one; ``apart``: whose filter is made ready beforehand."""
    asked = Request(problem, direction, H100, None, precision)

    def chosen(request: Request, near: bool) -> Choice:
        every = candidates(request)
        return replace(every, plans=tuple(p for p in every.plans if p.prepared_size or not apart))

    return next(merged(asked, False, LONG, chosen))
