"""Filters of one tap along the last dimension, along which tiles lie, and of more along another:
both change places, so that N × 1 is computed as 1 × N.

Kernels read maps by their strides: nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from winolab.algorithm import Problem
from winolab.gpu.params import MAX_STRIDE, MOST, View
from winolab.gpu.planner.ranking import WORTH
from winolab.gpu.planner.recast.computing import Choices, SeesOtherwise, within
from winolab.gpu.planner.request import Plan, Request

T = TypeVar("T")
NAMES = {-3: "depth", -2: "height"}


@dataclass(frozen=True)
class TurnedPlan(SeesOtherwise):
    """One call whose last dimension changes places with the one ``along`` which tiles lie then."""

    direction: str
    problem: Problem
    along: int  # of the spatial dimensions: -2 or -3
    turned: Plan

    @property
    def computing(self) -> Plan:
        """The plan of the turned problem."""
        return self.turned

    @property
    def neighbours(self) -> int:
        return self.along

    @property
    def kernel(self) -> str:
        """The plan's, and along what its tiles lie."""
        return f"{self.turned.kernel} along the {NAMES[self.along]}"

    def _by(self, plan: Plan) -> TurnedPlan:
        return replace(self, turned=plan)

    def _seen(self, view: View, role: str) -> View:
        """The view as kernels see it; before its three dimensions is the stride of images, or of
        output channels, behind those of a filter that of channels."""
        first, *sides = view.strides[:4]
        return replace(view, strides=(first, *_turned(sides, self.along), *view.strides[4:]))

    def __str__(self) -> str:
        return "\n".join(
            [
                self.problem.told(self.direction),
                f"the width and the {NAMES[self.along]} in each other's place:",
                str(self.turned),
            ]
        )


def turned(
    request: Request, near: bool, least: float, candidates: Callable[[Request, bool], Choices]
) -> Iterator[TurnedPlan]:
    """Plans where they are predicted to be WORTH it beside others that take ``least`` seconds, of a
    request that leaves the algorithm to the planner, whose ``candidates`` are; none of a filter
    that has several taps along the last dimension."""
    p = request.problem
    along = next((d for d in range(-2, -p.ndim - 1, -1) if p.filter[d] > 1), 0)
    named = request.algorithm or request.config or request.planes
    if named or not along or p.filter[-1] > 1 or not p.unit:
        return
    maps = (p.in_channels, *p.input), (p.out_channels, *p.output)
    if any(c * math.prod(sizes[along + 1 :]) > MAX_STRIDE for c, *sizes in maps):
        return  # kernels count from pixel to pixel in 32 bits
    if request.direction == "backward_filter" and any(math.prod(v) > MOST for v in maps):
        return  # and from the last of a column to the first of the next, an image nearly
    # Rows of x that begin at vectors are columns then.
    asked = replace(request, problem=turned_problem(p, along), aligned_rows=None)
    for plan in within(asked, near, WORTH * least, candidates):
        yield TurnedPlan(request.direction, p, along, plan)


def turned_problem(p: Problem, along: int) -> Problem:
    """The problem whose last dimension changes places with that one."""
    return replace(
        p,
        input=_turned(p.input, along),
        filter=_turned(p.filter, along),
        padding=_turned(p.padding, along),
    )


def _turned(values: Sequence[T], along: int) -> tuple[T, ...]:
    found = list(values)
    found[along], found[-1] = found[-1], found[along]
    return tuple(found)
