"""Which of the plans that can run is preferred: by time, error and workspace, as predicted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import attrgetter

from winolab.arguments.epilogue import Epilogue
from winolab.gpu.planner.correlation import CORRELATIONS, Correlation
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.rates import copying
from winolab.gpu.planner.request import ITEMSIZE, Plan, Request
from winolab.ref.error.metrics import error_ratio

# Times the least predicted time (which is off by 5 %) that fewer states are worth, and products of
# split parts that lose no more than FP32's sums do.
CLOSE, AS_EXACT = 1.01, 1.15
# States of split products that are taken whatever they lose; more where they lose less than that
# share of what FP32's sums in order do, by ``loss``: of nested tiles that lose 0.85 and more,
# errors over cuDNN's GEMM's were up to 1.13 times that (an H200's rows).
MOST_STATES, LOSES_LESS = 8, 0.89
# Times a plan's predicted time beyond which others are neither picked in its place nor compared
# with it: more than AS_EXACT and WORTH ask for, as much as experiments.measure.picks times.
NEAR = 1.2
# A workspace larger than a correlation's data or a gradient's usual limit, and transforms of parts
# of a gradient's batch, which err more, are worth it where they take at most so much of the time
# without.
WORTH = 0.91


def ordered(plans: list[Plan], request: Request, near: bool = False) -> tuple[list[Plan], str]:
    """Plans, the one to be picked first, and what it has where another is the fastest predicted.
    ``near``: what is slower by far than what is kept is not asked what it loses.

    With a tolerance, unless it is relative, the fastest is picked. Of 16-bit operands for a result
    in float32 those that transform come last. What stays within the workspace limit comes before
    what does not, and is compared with nothing of it."""
    limit = request.workspace_limit
    fits = [p for p in plans if limit is None or p.workspace <= limit]
    if fits and limit is not None and len(fits) < len(plans):
        found, why = ordered(fits, request, near)
        larger, _ = ordered([p for p in plans if p.workspace > limit], request, near)
        return [*found, *larger], why
    if request.tolerance and not request.tolerance.relative:
        return sorted(plans, key=taken(request)), ""
    plans, why = _sorted(plans, request, near)
    if request.shows_transforms and plans and transforms(fastest := plans[0]):
        plans = sorted(plans, key=transforms)
        if plans[0] is not fastest:
            why = "what is faster rounds transformed numbers to 16 bits, which FP32 results show"
    return plans, why


def _sorted(plans: list[Plan], request: Request, near: bool) -> tuple[list[Plan], str]:
    """The fastest first, of more than MOST_STATES what LOSES_LESS, others last; but of correlations
    that are as CLOSE to it that of the fewest states, or, if its split products lose more than
    FP32's sums, what does not for AS_EXACT times the time; and which of these it is. Where nobody
    says how, a workspace larger than the data has to be WORTH it."""
    seconds = taken(request)
    plans = sorted(plans, key=seconds)
    if not plans or plans[0].direction not in CORRELATIONS:
        return plans, ""
    kept, lossy = [], []
    for p in plans:
        late = kept and near and seconds(p) > NEAR * seconds(kept[0])
        (kept if late or not loses(p) else lossy).append(p)
    if not kept:
        return plans, ""
    costly: list[Plan] = []  # in workspace, for too little
    if not request.named:
        kept, costly = _worth(kept, request.data_size, seconds)
    fastest = kept[0]
    alike = [p for p in kept if p.precision == fastest.precision]
    close, dear = (
        [p for p in alike if seconds(p) <= times * seconds(fastest)] for times in (CLOSE, AS_EXACT)
    )
    first = min(close, key=_states)
    why = f"the fewest states within {CLOSE - 1:.0%} of the fastest" if first != fastest else ""
    if first.precision == "fp32_split" and (lost := loss(first)) > 1:
        exact = next((p for p in dear if loss(p) <= 1), None)
        if exact:
            why = f"it errs no more than sums in FP32; what is faster errs {lost:.2f} times as much"
            first = exact
    if not why and costly and seconds(costly[0]) < seconds(first):
        why = f"what is faster by less than {1 - WORTH:.0%} takes {costly[0].workspace >> 20} MiB"
    if not why and lossy and seconds(lossy[0]) < seconds(first):
        lost, most = loss(lossy[0]), f"more than {MOST_STATES} states may {LOSES_LESS}"
        why = f"what is faster errs {lost:.2f} times as much as sums in FP32, {most}"
    return [first, *(p for p in kept if p is not first), *costly, *lossy], why


def taken(request: Request) -> Callable[[Plan], float]:
    """What says how many seconds a call takes by a plan: of a ``finished`` one with the pass that
    applies bias, residual and activation where the plan's kernels do not."""
    if not request.finished:
        return attrgetter("predicted")
    size = ITEMSIZE[request.stored] * math.prod(request.problem.y_shape)
    behind = MODEL.device.launch + copying(request.device, 2 * size)
    return lambda p: p.predicted + behind * (p.with_epilogue(Epilogue()) is None)


def _worth(
    plans: list[Plan], data: int, seconds: Callable[[Plan], float]
) -> tuple[list[Plan], list[Plan]]:
    """Plans, the fastest first: those whose workspace is no larger than the data or is WORTH it,
    and the others."""
    large = [p.beside > data for p in plans]
    lean = (seconds(p) for p, is_large in zip(plans, large, strict=True) if not is_large)
    most = WORTH * min(lean, default=math.inf)
    worth: list[Plan] = []
    costly: list[Plan] = []
    for p, is_large in zip(plans, large, strict=True):
        (costly if is_large and seconds(p) > most else worth).append(p)
    return worth, costly


def loss(p: Plan) -> float:
    """Predicted error of a correlation over that of direct sums in FP32.

    Taps of zeros that fill up pieces, or phases, are part of what the tiles sum, not of what direct
    does.
    """
    c, tiles = Correlation.of(p.solved, p.direction, unit=False), p.tiles
    alone = len(c.filter) - len(tiles)  # dimensions that are summed directly
    filled = [-(-taps // t.r) for taps, t in zip(c.filter[alone:], tiles, strict=True)]
    sums = math.prod(c.filter[:alone]) * c.channels * math.prod(filled)
    taps = math.prod(n * t.r for n, t in zip(filled, tiles, strict=True))
    nested = tiles[0] if len(tiles) == 1 else tiles
    ratio = error_ratio(nested, p.points, p.simulated, max(1, sums), p.scaling)
    filled_up = math.prod(p.solved.w_shape) / math.prod(p.problem.w_shape)
    return ratio * math.sqrt(filled_up * taps / math.prod(c.filter[alone:]))


def loses(p: Plan) -> bool:
    """Whether split products of that many states err too much for the planner to pick them."""
    many = p.precision == "fp32_split" and _states(p) > MOST_STATES
    return many and loss(p) > LOSES_LESS


def least_sure(plans: Iterable[Plan], request: Request) -> float:
    """The least predicted time of a correlation's plans that no loss and no workspace rules out."""
    limit = request.workspace_limit
    sure = (
        p.predicted
        for p in plans
        if _states(p) <= MOST_STATES and p.beside <= request.data_size
        if limit is None or p.workspace <= limit
    )
    return min(sure, default=math.inf)


def transforms(p: Plan) -> bool:
    """Whether a plan's operands are transformed."""
    return any(t.alpha > 1 for t in p.tiles)


def _states(p: Plan) -> int:
    """States of all dimensions of a correlation's algorithm."""
    return math.prod(t.alpha for t in p.tiles)
