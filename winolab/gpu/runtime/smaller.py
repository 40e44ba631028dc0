"""What is planned again with less workspace where device memory lacks for it.

As PyTorch goes on to the next of cuDNN's algorithms, a call whose workspace cannot be allocated
takes the fastest plan of a smaller one: the next smaller, then within half as much again and again,
so that little time is given up where little lacks. The limit is kept for what was asked in this
process, so that the next call does not fail first; what the caller named, algorithm, config,
tolerance and limit, stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import replace
from threading import Lock

from winolab.gpu.planner.request import Plan
from winolab.gpu.runtime.arrays import Library
from winolab.gpu.runtime.planned import PlannedCall, plan_for
from winolab.gpu.runtime.resolve import Resolved

log = logging.getLogger("winolab.gpu")
LEAST = 64 << 10  # bytes: limits are halved so far, then 0


class NoWorkspace(MemoryError):
    """Device memory lacks for the smallest workspace that serves."""


_limits: dict[Hashable, int] = {}  # bytes, by what was asked
_changes = 0
_counting = Lock()  # threads plan again, too


def changes() -> int:
    """How often something was planned again: what is asked twice has one plan while it stays."""
    return _changes


def changed() -> None:
    """Told that something has another plan from now on."""
    global _changes
    with _counting:
        _changes += 1


def planned(asked: Resolved) -> tuple[Resolved, PlannedCall]:
    """The plan for what was asked, and the same within the limit that is kept for it; without that
    limit where no plan stays within, of arrays that lie in another way. Raises as PlannedCall.of.
    """
    limit = None if asked.transformed else _limits.get(_key(asked, apart=False))
    if limit is not None:
        with suppress(ValueError):
            within = _limited(asked, limit)
            return within, PlannedCall.of(within)
    return asked, PlannedCall.of(asked)


def filter_plan(asked: Resolved) -> Plan:
    """The plan whose filter is transformed apart, within the limit that is kept. Raises as
    ``plan_for``."""
    chosen, _, _ = _kept(asked, apart=True)
    return chosen


def is_short(asked: Resolved) -> bool:
    """Whether memory lacked for what was asked before."""
    return _key(asked, apart=False) in _limits


def less(
    asked: Resolved, library: Library, error: MemoryError, wanted: int, *, apart: bool = False
) -> None:
    """Keep a limit for what was asked, within which its memory is to be had, and say so in the log;
    ``error`` was raised for ``wanted`` bytes of it. ``apart``: they are a transformed filter's.

    Raises NoWorkspace where the smallest plan's are not to be had either, MemoryError while the
    stream is captured: loading kernels would break the capture.
    """
    from winolab.gpu.planner.planner import OverLimit  # which few calls need

    check_capture(library, asked.index, error)
    key = _key(asked, apart)
    _, least, counted = _kept(asked, apart)
    if least < wanted and library.fits(least, asked.index):
        return  # planned again for another call
    least = min(least, wanted)
    limit, smallest = counted - 1, False
    while limit >= 0:
        try:
            plan, size, counted = _sizes(_limited(asked, limit), apart)
        except OverLimit as over:
            if smallest or over.least >= counted:
                break
            limit, smallest = over.least, True
            continue
        except ValueError:  # the tile that was named needs more
            break
        if size < least:
            least = size
            if library.fits(size, asked.index):
                _limits[key] = limit
                changed()
                _log(asked, wanted, size, plan)
                return
        if smallest or not counted or not limit:
            break
        limit = min(limit, counted) // 2
        limit = limit if limit >= LEAST else 0
    raise NoWorkspace(f"{error}; the smallest plan takes {least} B") from error


def check_capture(library: Library, index: int, error: MemoryError) -> None:
    """Raise the error while the current stream is captured, and say what to do."""
    if library.capturing(index):
        raise MemoryError(
            f"{error}; while a graph captures, nothing is planned with less: call once before"
        ) from error


def _key(asked: Resolved, apart: bool) -> Hashable:
    """What was asked, however its arrays lie."""
    options = asked.options
    return (
        apart, asked.direction, asked.problem, asked.index, asked.dtype, asked.precision,
        asked.computed, options.named, options.config, options.tolerance, options.workspace_limit,
    )  # fmt: skip


def _limited(asked: Resolved, limit: int) -> Resolved:
    return replace(asked, options=replace(asked.options, workspace_limit=limit))


def _kept(asked: Resolved, apart: bool) -> tuple[Plan, int, int]:
    """The sizes within the limit that is kept, as ``planned`` has them."""
    if (limit := _limits.get(_key(asked, apart))) is not None:
        with suppress(ValueError):
            return _sizes(_limited(asked, limit), apart)
    return _sizes(asked, apart)


def _sizes(asked: Resolved, apart: bool) -> tuple[Plan, int, int]:
    """The plan, the bytes that are allocated for it, and those that a limit counts."""
    if apart:
        chosen = plan_for(asked, asked.fresh, apart=True)
        assert chosen  # there is something to sum
        return chosen, chosen.prepared_size, chosen.prepared_size + chosen.beside
    made = PlannedCall.of(asked)
    assert made.plan
    return made.plan, made.end, made.workspace


def _log(asked: Resolved, wanted: int, size: int, plan: Plan) -> None:
    p = asked.problem
    log.warning(
        "no device memory for %d B of workspace: %s of x%s w%s takes %d B from now on, by %s in %s",
        *(wanted, asked.direction, p.x_shape, p.w_shape, size, plan.kernel, plan.precision),
    )
