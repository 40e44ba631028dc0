"""The planner's picks against a GPU's clock: what is predicted to be nearly as fast is timed.

PyTorch calls the like its benchmark mode. ``timed`` runs a request's rivals side by side, keeps
their seconds for the next process, and ``prefer`` lets the fastest be planned from now on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial

from winolab.arguments.arrays import PRECISION_OF_DTYPE
from winolab.bench.compare import LONG, SPARE, failure, free
from winolab.bench.contenders import Arrays, bound, bound_prepared
from winolab.bench.timing import FLUSH, interleave
from winolab.gpu import driver
from winolab.gpu.planner.ranking import taken
from winolab.gpu.planner.request import Plan, Request
from winolab.gpu.planner.rivals import rivals
from winolab.gpu.runtime.cache import plans as kept
from winolab.gpu.runtime.call import kernels_of
from winolab.gpu.warm import Timed, compile_all, plans_units

log = logging.getLogger("winolab.gpu")
# Rounds of all rivals; of those that are within FEWER of the fastest then; and of the pick and the
# fastest alone, whose time is a lucky one among several. Of calls of LONG seconds and more FEW are
# enough.
FIRST, ROUNDS, LAST, FEW, FEWER = 3, 11, 31, 5, 1.1
# Times the pick's seconds that another takes at most to be taken in its place. With 0.99 and no
# last rounds 133 of 295 calls on an H200 took another, and 46 of these lost when timed once more
# (docs/notes/136).
SURE = 0.97
_rivals = lru_cache(maxsize=4096)(rivals)  # asked for when kernels are compiled, and when timed


def timed(request: Request, apart: bool = False, *, again: bool = False) -> Timed:
    """The request's rivals, timed on its GPU, which is to be current, or as a process before did;
    ``again``: anew. Arrays are new ones, channels last, uniform on [-1, 1).

    Raises ValueError as the planner, MemoryError where the arrays do not fit in device memory.
    """
    plans = _rivals(request, apart)
    found = () if again else kept.kept_times(request, apart)
    of = {p for p, _ in found}
    if plans[0] in of and of <= {*plans}:
        return Timed(request, apart, plans[0], found)
    seconds = _seconds(request, plans, apart) if len(plans) > 1 else {}
    pick = plans[0]
    if len(seconds) < 2:
        return Timed(request, apart, pick, ((pick, pick.predicted),))
    ranked = sorted(seconds.items(), key=lambda each: each[1])
    if ranked[0][1] > SURE * seconds[pick]:
        ranked = [(pick, seconds[pick]), *((p, s) for p, s in ranked if p != pick)]
    kept.keep_times(request, apart, tuple(ranked))
    return Timed(request, apart, pick, tuple(ranked))


def prefer(
    asked: Iterable[tuple[Request, bool]],
    workers: int | None = None,
    done: Callable[[], object] = lambda: None,
) -> tuple[Timed, ...]:
    """Time what was planned, request by request, and let the fastest be planned from now on; what
    does not fit in device memory keeps the planner's pick, which is logged.

    Kernels are compiled on ``workers`` threads before, by default one a core; ``done`` is called
    behind each request.
    """
    requests = list(asked)
    plans = (p for request, apart in requests for p in _rivals(request, apart))
    compile_all((unit for p in plans for unit in plans_units(p)), workers)
    found: list[Timed] = []
    for request, apart in requests:
        try:
            one = timed(request, apart)
        except MemoryError as error:
            log.warning("%s is not timed: %s", request.problem.told(request.direction), error)
        else:
            kept.prefer(request, apart, one.plan)
            found.append(one)
        done()
    return tuple(found)


def _seconds(request: Request, plans: list[Plan], apart: bool) -> dict[Plan, float]:
    """Seconds of each plan that runs, with the pass behind for what follows it; nothing where that
    is fewer than two, or where results have another dtype than operands."""
    if plans[0].out_dtype != request.dtype:
        return {}
    index = driver.cupy().cuda.Device().id
    free()  # what PyTorch holds for later
    try:
        return _side_by_side(request, plans, apart, index)
    finally:
        free()


def _side_by_side(
    request: Request, plans: list[Plan], apart: bool, index: int
) -> dict[Plan, float]:
    cp = driver.cupy()
    group = PRECISION_OF_DTYPE[request.dtype]
    driver.make_current(index)
    arrays = Arrays(request.direction, request.problem, group, ("NHWC",))
    arrays.fill(-1, 1)
    spare = cp.cuda.Device().mem_info[0] - FLUSH - SPARE
    plans = [plans[0], *(p for p in plans[1:] if p.workspace + p.prepared_size <= spare)]
    workspace = cp.empty(max(1, *(p.workspace for p in plans)), "uint8")
    how = bound_prepared if apart else bound
    runs = [how(p, cache(partial(kernels_of, p, index)), index) for p in plans]
    calls = {str(i): partial(run, arrays, workspace.data.ptr) for i, run in enumerate(runs)}
    for name, call in [*calls.items()]:
        if why := failure(call):
            log.warning("%s is not timed: %s", plans[int(name)].title, why)
            del calls[name]
    if "0" not in calls:
        return {}
    first = interleave(calls, rounds=FIRST, flush=FLUSH, warmup=0)
    least = min(t.median for t in first.values())
    close = {n: c for n, c in calls.items() if n == "0" or first[n].median <= FEWER * least}
    several, many = (n if least < LONG else FEW for n in (ROUNDS, LAST))
    times = first | interleave(close, rounds=several, flush=FLUSH, warmup=0)
    behind = taken(request)

    def seconds() -> dict[Plan, float]:
        return {
            p: times[str(i)].median + (behind(p) - p.predicted)
            for i, p in enumerate(plans)
            if str(i) in times
        }

    fastest = plans.index(min(found := seconds(), key=found.__getitem__))
    if fastest:
        both = {n: calls[n] for n in ("0", str(fastest))}
        times |= interleave(both, rounds=many, flush=FLUSH, warmup=0)
    return seconds()
