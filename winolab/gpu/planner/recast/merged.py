"""Layers that meet every pixel of a row once, their stride being as long as their filter: as many
pixels are one, of all their channels.

Where pixels lie side by side, nothing is copied: a row of W pixels of C channels is one of W / s
pixels of s C, and a filter's row one tap of as many. Copies read whole lines of memory then, and
few channels become several. Patches of vision transformers are such layers, and those by which
networks halve their maps without overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from winolab.algorithm import Problem
from winolab.gpu.params import VECTOR, View
from winolab.gpu.planner.ranking import WORTH
from winolab.gpu.planner.recast.computing import Choices, SeesOtherwise, within
from winolab.gpu.planner.request import ITEMSIZE, Plan, Request

WIDTH = 3  # a view's stride from pixel to pixel of a row


@dataclass(frozen=True)
class MergedPlan(SeesOtherwise):
    """One call whose ``merged`` problem another plan computes, where x, w and their gradients
    lie."""

    direction: str
    problem: Problem
    merged: Plan

    merges_pixels = True

    @property
    def computing(self) -> Plan:
        """The plan of the merged problem."""
        return self.merged

    @property
    def kernel(self) -> str:
        """The plan's, and of how many pixels one is."""
        return f"{self.merged.kernel} on pixels of {self.problem.stride[-1]}"

    def _by(self, plan: Plan) -> MergedPlan:
        return replace(self, merged=plan)

    def _seen(self, view: View, role: str) -> View:
        """The view as kernels see it."""
        if role == "y":
            return view
        strides = list(view.strides)
        if role == "w" and self.problem.in_channels == 1:  # that of one channel may be any
            strides[-1] = strides[WIDTH]
        strides[WIDTH] *= self.problem.stride[-1]
        return replace(view, strides=tuple(strides))

    def __str__(self) -> str:
        return "\n".join(
            [
                self.problem.told(self.direction),
                f"{self.problem.stride[-1]} pixels of a row as one:",
                str(self.merged),
            ]
        )


def merged(
    request: Request, near: bool, least: float, candidates: Callable[[Request, bool], Choices]
) -> Iterator[MergedPlan]:
    """Plans where they are predicted to be WORTH it beside others that take ``least`` seconds, of a
    request that leaves the algorithm to the planner, whose ``candidates`` are."""
    p, s = request.problem, request.problem.stride[-1]
    named = request.algorithm or request.config or request.planes
    once = s == p.filter[-1] > 1 and p.padding[-1] == (0, 0) and p.dilation[-1] == 1
    # Pixels behind the last whole ones are read by nothing; of dx they would have to be filled.
    whole = request.direction != "backward_data" or s * p.output[-1] == p.input[-1]
    if named or not once or not whole or p.groups > 1 or p.empty:
        return
    vector = VECTOR // ITEMSIZE[request.dtype]
    rows, ends = (request.aligned if flag is None else flag
                  for flag in (request.aligned_rows, request.aligned_outputs))  # fmt: skip
    asked = replace(
        request, problem=merged_problem(p), aligned_maps=None, aligned_rows=None,
        aligned=rows and ends and s * p.in_channels % vector == 0,
    )  # fmt: skip
    for plan in within(asked, near, WORTH * least, candidates):
        yield MergedPlan(request.direction, p, plan)


def merged_problem(p: Problem) -> Problem:
    """The problem of a pixel for as many of a row as its stride is long."""
    return replace(
        p,
        in_channels=p.in_channels * p.stride[-1],
        input=(*p.input[:-1], p.output[-1]),
        filter=(*p.filter[:-1], 1),
        stride=(*p.stride[:-1], 1),
    )
