"""Kernels compiled before they are called, for a GPU that need not be there, or while calls do
without them: on all cores, into the cache.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

from winolab.arguments.values import whole
from winolab.arguments.words import plural
from winolab.device import Device
from winolab.gpu.planner.request import DTYPES, Plan, Request
from winolab.gpu.runtime import cache, nvrtc
from winolab.gpu.runtime.array_layout import dense
from winolab.gpu.runtime.arrays import Described
from winolab.gpu.runtime.cache.plans import source_of
from winolab.gpu.runtime.cache.source import Source
from winolab.gpu.runtime.call import titled
from winolab.gpu.runtime.planned import PlannedCall, plan_for
from winolab.gpu.runtime.resolve import Resolved, resolve
from winolab.kind import ShowsText
from winolab.options import ConvOptions
from winolab.problem import Problem, shapes

SLOW = 2.0  # seconds to compile a unit, at most: issue 46


@dataclass(frozen=True)
class Unit:
    """A translation unit: what the log calls it, its source, and what it is compiled for."""

    title: str
    source: Source = field(repr=False)
    arch: str


@dataclass(frozen=True)
class Timed(ShowsText):
    """Plans of a request and their seconds on its GPU, cold L2 cache: the one to be taken first,
    then the fastest; ``pick`` is the planner's. One plan alone is not timed and has its prediction.
    """

    request: Request
    apart: bool  # whether the filter is transformed before
    pick: Plan
    times: tuple[tuple[Plan, float], ...]

    @property
    def plan(self) -> Plan:
        """What is to be taken."""
        return self.times[0][0]

    @property
    def gain(self) -> float:
        """The pick's seconds over those of what is to be taken."""
        return dict(self.times)[self.pick] / self.times[0][1]

    def to_dict(self) -> dict[str, Any]:
        """Plans and seconds as JSON has them."""
        times = [{"plan": p.title, "seconds": s, "predicted": p.predicted} for p, s in self.times]
        told = self.request.problem.told(self.request.direction)
        return {"call": told, "pick": self.pick.title, "times": times}

    def __str__(self) -> str:
        (first, seconds), *_ = self.times
        told = self.request.problem.told(self.request.direction)
        faster = f"{self.gain:.2f} times as fast as the planner's pick"
        return f"{told}: {first.title}, {1e6 * seconds:.1f} µs, {faster}"


@dataclass(frozen=True)
class Warmed(ShowsText):
    """What was compiled: seconds by unit, None where the cache had it; seconds in all; and calls
    whose plans were timed (winolab.bench.picks)."""

    units: tuple[tuple[Unit, float | None], ...]
    seconds: float
    timed: tuple[Timed, ...] = ()

    @property
    def compiled(self) -> list[tuple[Unit, float]]:
        """The units that were compiled, the slowest first."""
        found = [(unit, seconds) for unit, seconds in self.units if seconds is not None]
        return sorted(found, key=lambda each: -each[1])

    def to_dict(self) -> dict[str, Any]:
        """The units' names and seconds as JSON has them."""
        units = [{"title": u.title, "arch": u.arch, "seconds": s} for u, s in self.units]
        timed = {"timed": [one.to_dict() for one in self.timed]} if self.timed else {}
        return {"seconds": self.seconds, "units": units, **timed}

    def __str__(self) -> str:
        if self.timed:
            return f"{replace(self, timed=())}; {_gained(self.timed)}"
        said = (
            f"{plural(len(self.units), 'kernel')}: {len(self.compiled)} compiled in "
            f"{self.seconds:.1f} s, {len(self.units) - len(self.compiled)} in the cache"
        )
        if not self.compiled:
            return said
        unit, seconds = self.compiled[0]
        slow = sum(each > SLOW for _, each in self.compiled)
        return f"{said}; {slow} took over {SLOW:.0f} s, the longest {seconds:.1f} s: {unit.title}"


def _gained(timed: Iterable[Timed]) -> str:
    """How many calls have another plan than the planner's, and what that gains."""
    every = [one for one in timed if len(one.times) > 1]
    gains = [one.gain for one in every if one.plan != one.pick]
    said = f"{plural(len(every), 'call')} timed"
    if not gains:
        return f"{said}, which keep the planner's picks"
    return f"{said}, {len(gains)} with another plan, up to {max(gains):.2f} times as fast"


def calls_units(
    direction: str,
    problem: Problem,
    device: Device,
    options: ConvOptions,
    a: Described | None = None,
    b: Described | None = None,
    residual: Described | None = None,
    *,
    kept: bool = False,
) -> list[Unit]:
    """What a call loads: the plan's kernels, and those of copies between memory orders.

    ``a`` and ``b`` say how the operands lie; None: as a new array does, channels last, of the dtype
    that the precision has. ``residual``: what is added to the result. ``kept``: the filter is
    transformed apart, as modules in evaluation do. Raises as winolab.conv_forward.
    """
    if options.layout == "channels_last":
        dtype = DTYPES[str(options.precision)]
        first, second, _ = shapes(direction, problem)
        a, b = a or dense(first, dtype), b or dense(second, dtype)
    assert a
    assert b
    asked = resolve(direction, problem, options, a, b, None, residual=residual, meant=device)
    return list(dict.fromkeys(_units(asked, kept)))


def _units(asked: Resolved, kept: bool) -> Iterator[Unit]:
    arch = nvrtc.architecture(asked.device.compute_capability)
    made = PlannedCall.of(asked)
    plans: list[Plan | None] = [made.plan]
    if kept and made.plan and made.plan.prepared_size:
        plans.append(plan_for(asked, asked.fresh, apart=True))
    for plan in plans:
        if plan and not asked.problem.empty:
            yield from plans_units(plan)
    copies = {name: copied.copy for name, copied in made.copies.items()}
    if made.after:
        copies["out"] = made.after
    for name, copy in copies.items():
        yield Unit(titled(name), Source.of(copy.source()), arch)


def plans_units(plan: Plan) -> Iterator[Unit]:
    """What a plan's kernels are compiled from."""
    arch = nvrtc.architecture(plan.device.compute_capability)
    for unit in plan.translation_units():
        if source := source_of(unit):
            yield Unit(unit.title, source, arch)


def compile_all(
    units: Iterable[Unit],
    workers: int | None = None,
    done: Callable[[], object] = lambda: None,
) -> Warmed:
    """Compile what the cache lacks of the units, each once, on so many threads; by default one a
    core. What is behind a unit in ``units`` may be planned while that is compiled: seconds count
    both. ``done`` is called behind every unit. Raises as winolab.gpu.runtime.cache.cubin, TypeError
    and ValueError for threads that are no integer of at least 1."""
    if workers is not None and (isinstance(workers, bool) or whole(workers, "workers") < 1):
        raise ValueError(f"workers is {workers}; expected at least 1, or None for one a core")
    started = time.perf_counter()
    begun: dict[tuple[Source, str], tuple[Unit, Future[float | None]]] = {}
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        try:
            for unit in units:
                key = unit.source, unit.arch
                future = begun[key][1] if key in begun else pool.submit(_compile, unit)
                begun[key] = unit, future
            for future in as_completed([future for _, future in begun.values()]):
                future.result()
                done()
        except BaseException:  # an interrupt, too: what did not begin need not
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    ended = time.perf_counter()
    return Warmed(
        tuple((unit, future.result()) for unit, future in begun.values()), ended - started
    )


class Background:
    """Kernels that threads compile while calls are computed in another way; off until ``on``."""

    def __init__(self) -> None:
        self.on = False
        self._pool: ThreadPoolExecutor | None = None
        self._begun: dict[Hashable, Future[Warmed]] = {}

    def ready(self, call: Hashable, units: Callable[[], Iterable[Unit]]) -> bool:
        """Whether what the call loads is compiled; the first time it is asked, that begins, with
        the units. What cannot be compiled is ready: the call itself says why."""
        begun = self._begun.get(call)
        if begun is None:
            self._pool = self._pool or ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1))
            begun = self._begun[call] = self._pool.submit(lambda: compile_all(units(), 1))
        return begun.done()


def _compile(unit: Unit) -> float | None:
    if cache.kept(unit.source, unit.arch):
        return None
    started = time.perf_counter()
    cache.compiled_anew(unit.source, unit.arch, unit.title)
    return time.perf_counter() - started
