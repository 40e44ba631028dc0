"""Which kernel runs a problem: pure Python, no GPU needed.

Every family of kernels (families/registry.py) offers the plans that it has for a problem, each with
a predicted time; the chooser takes the fastest, or one that is nearly as fast and more accurate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from winolab.algorithm import Direct
from winolab.arguments.tolerance import USUAL_TOLERANCE, Tolerance
from winolab.gpu.families.registry import FAMILIES
from winolab.gpu.planner.accuracy import incurred, within
from winolab.gpu.planner.correlation import TRANSFORMS
from winolab.gpu.planner.fallback import FLAGS, with_fallback
from winolab.gpu.planner.ranking import NEAR, WORTH, least_sure, ordered
from winolab.gpu.planner.recast.dilated import phased
from winolab.gpu.planner.recast.folded import folded
from winolab.gpu.planner.recast.images import of_any_batch
from winolab.gpu.planner.recast.merged import merged
from winolab.gpu.planner.recast.stacked import stacked
from winolab.gpu.planner.recast.turned import turned
from winolab.gpu.planner.request import PRECISIONS, Plan, Request

# Without a limit, filter gradients take at most so much of x, w and y as workspace, by their dtype,
# or so many bytes, unless more is WORTH it.
USUAL_SHARE = {"float32": 0.41, "float16": 0.45, "bfloat16": 0.45}
USUAL_LEAST = 16 << 20


class OverLimit(ValueError):
    """No plan stays within the workspace's limit; ``least``: the bytes that the smallest takes."""

    def __init__(self, said: str, least: int) -> None:
        super().__init__(said)
        self.least = least


@dataclass(frozen=True)
class Choice:
    """What the planner chose from: plans, its choice first, and why some families have none.

    ``why`` says what the choice has where another plan is the fastest predicted.
    """

    plans: tuple[Plan, ...]
    reasons: tuple[str, ...]
    why: str = ""


def candidates(request: Request, near: bool = False) -> Choice:
    """Every plan that can run and keeps to the tolerance, whatever its workspace; ``near``: of a
    request that does not say how, those that can be picked suffice.

    Raises ValueError where none keeps to the tolerance, and says the least that can be had."""
    near = near and not request.named and not request.tolerance
    request.check()
    if request.algorithm:
        request.algorithm.check_direction(request.direction)
    if request.algorithm and request.algorithm.in_pieces:
        raise ValueError(
            f"{request.algorithm} runs on a GPU in pieces, each with a plan of its own: winolab."
            "decomposition shows them, winolab.gpu.planner.recast.pieces.planned has the plans"
        )
    alone = any(family.alone(request) for family in FAMILIES)
    found: list[Plan] = []
    reasons: list[str] = []
    for unit in PRECISIONS[request.precision]:
        offered, why = _offered(replace(request, precision=unit), near)
        reasons += why
        if unit == "fp32_split" and offered:
            fallbacks = found
            ffma = replace(request, algorithm=None, precision="fp32", config=None)
            if request.algorithm or request.config or not found:
                fallbacks, _ = _offered(ffma)
            limit = request.workspace_limit
            if limit is not None and all(FLAGS + f.workspace > limit for f in fallbacks):
                fallbacks = fallbacks + _offered(replace(ffma, workspace_limit=0))[0]
            named = request.precision == unit
            how = {"alone": bool(request.config), "others": bool(found)}
            offered = list(with_fallback(offered, fallbacks, named, **how))
        found += offered
        if near and found and alone:
            break
    if not alone:
        least = min((p.predicted for p in found), default=0.0)
        found += phased(request, least, candidates)
        found += stacked(request, least, candidates)
        found += merged(request, near, least, candidates)
        found += turned(request, near, least, candidates)
        found += folded(request, near, least, candidates)
    if not found and not reasons:
        reasons.append(f"no CUDA kernel computes {request.direction} in {request.precision}")
    if found and request.tolerance:
        found = within(request.tolerance, found, request.precision)
    plans, why = ordered([p for p in found if p.config == request.config] or found, request, near)
    return Choice(tuple(plans), tuple(dict.fromkeys(reasons)), why)


def _offered(request: Request, near: bool = False) -> tuple[list[Plan], list[str]]:
    """Plans of all families for products of that precision, and why some have none."""
    found: list[Plan] = []
    reasons: list[str] = []
    for family in FAMILIES:
        if request.direction in family.directions and request.precision in family.precisions:
            try:
                least = least_sure(found, request) if near and family.fastest_first else math.inf
                for p in family.plans(request, near):
                    found.append(p)
                    if p.predicted > NEAR * least:
                        break
            except ValueError as error:
                reasons.append(str(error))
            if near and found and family.alone(request):
                break
    return found, reasons


def size(p: Plan, apart: bool) -> int:
    """Bytes that a limit counts: ``apart``, a filter that is kept and what calls take beside it."""
    return p.prepared_size + p.beside if apart else p.workspace


def usual_tolerance(request: Request) -> Tolerance | None:
    """The tolerance, if it asks for no less than what nobody asks for may err; else None."""
    limited = request.tolerance
    usual = limited and limited.relative and limited.most <= USUAL_TOLERANCE.most
    return limited if usual else None


def usual_limit(request: Request) -> int:
    """Bytes of workspace that a filter gradient takes where nobody says how many it may."""
    return max(USUAL_LEAST, int(USUAL_SHARE[request.dtype] * request.data_size))


def _frugal(request: Request, fastest: Plan) -> Plan:
    """The fastest, or what computes a filter gradient within the usual limit where more workspace
    is not WORTH it; of these, parts of the batch have to be WORTH it beside direct products."""
    if fastest.workspace <= (limit := usual_limit(request)):
        return fastest
    within = replace(request, workspace_limit=limit)
    direct, parts = (
        next((p for p in candidates(asked).plans if p.workspace <= limit), None)
        for asked in (replace(within, algorithm=Direct()), within)
    )
    lean = direct
    if parts and (not direct or parts.predicted <= WORTH * direct.predicted):
        lean = parts
    return fastest if not lean or fastest.predicted <= WORTH * lean.predicted else lean


@lru_cache(maxsize=4096)
def plan(request: Request, apart: bool = False) -> Plan:
    """The fastest predicted Plan; with ``apart`` of those whose filter can be transformed apart.

    A filter gradient for which neither a limit nor an algorithm is named keeps to the usual limit,
    unless more workspace is WORTH it. A request that is ``batch_invariant`` gets the plan of one
    image, as of_any_batch says. Raises ValueError where nothing can run, and says why: OverLimit
    where it is the limit.
    """
    if request.batch_invariant:
        return of_any_batch(request, plan, candidates)
    if limited := usual_tolerance(request):
        # few plans are looked at where the usual one keeps to it
        usual = plan(replace(request, tolerance=None), apart)
        if incurred(limited.kind, usual) <= limited.most:
            return usual
    choice = candidates(request, near=True)
    found = [p for p in choice.plans if not apart or p.prepared_size]
    if not found:
        nothing = (
            f"no kernel of {request.direction} in {request.precision} transforms its filter apart"
        )
        reasons = choice.reasons
        if not request.algorithm:  # that transforms need unit strides explains nothing unasked for
            reasons = tuple(r for r in reasons if not r.startswith(TRANSFORMS)) or reasons
        of_all, _, named = request.precision.partition("_")
        if named and not request.named:
            reasons = (*reasons, f"precision {of_all!r} has other kernels")
        raise ValueError("; ".join(reasons) or nothing)
    limit = request.workspace_limit
    if apart and limit is not None:
        # Nested Winograd cuts the batch by the limit, of which a fallback's filter takes some.
        kept = max(p.fallback.prepared_size if p.fallback else 0 for p in found)
        less = candidates(replace(request, workspace_limit=max(0, limit - kept)))
        found = [p for p in less.plans if p.prepared_size] + found
    if request.direction == "backward_filter" and not request.named:
        return _frugal(request, found[0])

    for p in found:
        if limit is None or size(p, apart) <= limit:
            return p
    least = min(found, key=lambda p: size(p, apart))
    needed = size(least, apart)
    raise OverLimit(
        f"no plan stays within a workspace of {limit} B; the smallest needs {needed} B, "
        f"{least.kernel} in {least.precision}, {least.config}: raise the limit",
        needed,
    )
