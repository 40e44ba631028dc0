"""Plans predicted to take nearly as long as the planner's pick: a clock tells which wins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from winolab.gpu.planner.accuracy import incurred
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.planner import (
    candidates,
    plan,
    size,
    usual_limit,
    usual_tolerance,
)
from winolab.gpu.planner.ranking import NEAR, loses, loss, taken, transforms
from winolab.gpu.planner.request import Plan, Request

MOST = 8  # plans, the pick among them


def rivals(request: Request, apart: bool = False, most: int = MOST) -> list[Plan]:
    """The plan of ``planner.plan`` and, behind it, what may be taken in its place.

    That is what is predicted to take at most NEAR times as long, writes the same dtype, and keeps
    to what the pick keeps to: the tolerance, the limit of the workspace, or where nobody states one
    the data's size or the pick's own, and of split products FP32's error or the pick's own. The
    fastest of each kernel comes first, as errors of predictions are alike within a kernel. Alone is
    the pick of a request that names a config, whose maps lie channels first, or that wants the same
    bits of every batch, for whose sake it was picked. Raises ValueError as ``planner.plan``.
    """
    pick = plan(request, apart)
    if request.config or request.batch_invariant or request.planes:
        return [pick]
    seconds = taken(request)
    near = sorted(_near(request, pick, apart), key=seconds)
    first: dict[tuple[str, str], Plan] = {(pick.kernel, pick.precision): pick}
    for p in near:
        first.setdefault((p.kernel, p.precision), p)
    found = {what(p): p for p in (*first.values(), *near)}
    return list(found.values())[:most]


def what(p: Plan) -> tuple[str, ...]:
    """What tells a plan from others that launch other kernels, or these on other shares."""
    return p.kernel, p.precision, p.points, str(p.config), str(p.workspace)


def _near(request: Request, pick: Plan, apart: bool) -> list[Plan]:
    usual = usual_tolerance(request)
    asked = replace(request, tolerance=None) if usual else request
    seconds = taken(request)
    late = NEAR * seconds(pick)
    exact = pick.direction in CORRELATIONS and pick.precision == "fp32_split"
    lost = max(1.0, loss(pick)) if exact else 1.0
    fits = _fits(request, pick, apart)

    def serves(p: Plan) -> bool:
        if seconds(p) > late or p.out_dtype != pick.out_dtype or not fits(p):
            return False
        if (apart and not p.prepared_size) or what(p) == what(pick):
            return False
        if request.shows_transforms and transforms(p) and not transforms(pick):
            return False
        splits = p.direction in CORRELATIONS and p.precision == "fp32_split"
        if splits and (loses(p) or loss(p) > lost):
            return False
        return not usual or incurred(usual.kind, p) <= usual.most

    return [p for p in candidates(asked, near=True).plans if serves(p)]


def _fits(request: Request, pick: Plan, apart: bool) -> Callable[[Plan], bool]:
    """Whether a plan's workspace is no larger than one that the planner takes."""
    limit = request.workspace_limit
    if limit is not None:
        return lambda p: size(p, apart) <= limit
    if request.direction == "backward_filter":
        gradient = max(usual_limit(request), pick.workspace)
        return lambda p: p.workspace <= gradient
    most = max(request.data_size, pick.beside)
    return lambda p: p.beside <= most
