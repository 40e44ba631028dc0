"""Plans on pixels that are one, whatever else is faster."""

from __future__ import annotations

from tests.gpu.planner.recast.choices import LONG, with_filters
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.planner.recast.merged import MergedPlan, merged
from winolab.gpu.planner.request import Request


def planned(problem: Problem, direction: str, precision: str, apart: bool = False) -> MergedPlan:
    """The fastest plan on pixels that are one; ``apart``: whose filter is made ready beforehand."""
    asked = Request(problem, direction, H100, None, precision)
    return next(merged(asked, False, LONG, with_filters(apart)))
