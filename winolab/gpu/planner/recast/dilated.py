"""Dilated correlations in phases: correlations without dilation of strided views, as DWM has them.

A dilation of d along a dimension makes d phases of outputs, which read as many phases of inputs
and all taps: no sums are joined, and what transforms can run. All phases run by the kernels of one
plan, on a filter that is transformed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from winolab.algorithm import Problem, dwm
from winolab.arguments.words import plural
from winolab.gpu.params import Kernels, View, aligned
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.fallback import PlanWithFallback
from winolab.gpu.planner.ranking import WORTH
from winolab.gpu.planner.recast.computing import Choices, ComputedByAnother
from winolab.gpu.planner.recast.images import algorithm_of
from winolab.gpu.planner.request import DTYPES, ITEMSIZE, Plan, Request
from winolab.problem import NAMES
from winolab.ref.algorithms.dwm.parts import Part, parts
from winolab.ref.arithmetic.split import Scale

LEADERS = 3  # kernels that are tried


@dataclass(frozen=True)
class Phase:
    """A phase's plan; first elements and steps of its views along depth, height and width."""

    plan: Plan
    a: tuple[tuple[int, int], ...]
    out: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PhasedPlan(ComputedByAnother):
    """One call in phases, which one plan's kernels compute one after another."""

    direction: str
    problem: Problem
    phases: tuple[Phase, ...]

    @property
    def computing(self) -> Plan:
        """Any phase's."""
        return self.phases[0].plan

    @property
    def kernel(self) -> str:
        """The phases' and how many there are."""
        return f"{self.computing.kernel} in {plural(len(self.phases), 'phase')}"

    @property
    def reads_filters_in_place(self) -> bool:
        return self.computing.reads_filters_in_place

    @property
    def predicted(self) -> float:
        """Seconds of all phases, each with a transform of the filter, which one has."""
        return sum(p.plan.predicted for p in self.phases)

    @property
    def beside(self) -> int:
        """Bytes of the phase that needs the most: they take turns."""
        whole = not self.prepared_size
        return max(p.plan.workspace if whole else p.plan.beside for p in self.phases)

    @property
    def workspace(self) -> int:
        """Bytes: a phase's, and behind them the transformed filter."""
        return self._place + self.prepared_size if self.prepared_size else self.beside

    @property
    def _place(self) -> int:
        return aligned(self.beside)

    def scaled(self, scale: Scale | None) -> PhasedPlan:
        """The plan with the caller's scale where its products are split."""
        scaled = (replace(p, plan=p.plan.scaled(scale)) for p in self.phases)
        return replace(self, phases=tuple(scaled)) if scale else self

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        if self.prepared_size:
            self.prepare(kernels, b, workspace + self._place, index)
            self.run(kernels, a, workspace + self._place, out, workspace, index)
            return
        for p in self.phases:
            first, result = self._views(p, a, out)
            p.plan.launch(kernels, first, b, result, workspace, index)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter, which all phases have."""
        self.computing.prepare(kernels, b, prepared, index)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """As ``launch``, with the filter transformed."""
        for p in self.phases:
            first, result = self._views(p, a, out)
            p.plan.run(kernels, first, prepared, result, workspace, index)

    def _views(self, p: Phase, a: View, out: View) -> tuple[View, View]:
        sizes = ITEMSIZE[DTYPES[self.precision]], ITEMSIZE[self.out_dtype]
        return _view(a, p.a, sizes[0]), _view(out, p.out, sizes[1])

    def __str__(self) -> str:
        p, sizes = self.problem, [p.plan.predicted for p in self.phases]
        return "\n".join(
            [
                p.told(self.direction),
                f"{plural(len(self.phases), 'phase')} without dilation; one of them:",
                str(self.computing),
                f"all phases {self.workspace} B workspace, predicted {sum(sizes) * 1e6:.1f} µs",
            ]
        )


def _view(view: View, places: tuple[tuple[int, int], ...], size: int) -> View:
    """The part of an array of ``size`` bytes an element that begins there, at such steps."""
    batch, *along = view.strides
    ahead = sum(first * s for (first, _), s in zip(places, along, strict=True))
    strides = (s * step for (_, step), s in zip(places, along, strict=True))
    return replace(view, address=view.address + size * ahead, strides=(batch, *strides))


def phased(
    request: Request, least: float, candidates: Callable[[Request, bool], Choices]
) -> Iterator[PhasedPlan]:
    """Phases where they are predicted to be WORTH it beside plans that take ``least`` seconds, of
    a request that leaves the algorithm to the planner, whose ``candidates`` are."""
    p = request.problem
    free = request.in_phases and not (request.algorithm or request.config)
    if not free or request.direction not in CORRELATIONS or not request.aligned:
        return
    count = math.prod(p.dilation)
    if count == 1 or {*p.stride} != {1} or max(p.filter) == 1 or least < count * MODEL.device.phase:
        return
    found = list(parts(p, dwm(max(p.filter), 2), "fp32", request.direction))
    found.sort(key=lambda part: _outputs(part, request.direction), reverse=True)
    outputs = sum(_outputs(part, request.direction) for part in found)
    if outputs != math.prod(p.output if request.direction == "forward" else p.input):
        return  # phases that meet padding alone have no part
    asked, largest = replace(request, tolerance=None), found[0]
    most = WORTH * least * _outputs(largest, request.direction) / outputs
    of_largest = candidates(replace(asked, problem=largest.problem), True).plans
    leaders = {q.kernel: q for q in reversed(of_largest) if q.predicted <= most}
    for leader in [q for q in of_largest if leaders.get(q.kernel) is q][:LEADERS]:
        plans = []
        for part in found:
            follower = _follower(leader, replace(asked, problem=part.problem), candidates)
            if not follower or not _together(leader, follower):
                break
            plans.append(_phase(follower, part, request))
        else:
            made = PhasedPlan(request.direction, p, tuple(plans))
            if made.predicted <= WORTH * least:
                yield made
                return


def _follower(
    leader: Plan, asked: Request, candidates: Callable[[Request, bool], Choices]
) -> Plan | None:
    """What is configured as ``leader``, for another problem; None where nothing is."""

    def like(p: Plan, precision: str) -> Plan | None:
        how = {"algorithm": algorithm_of(p), "config": p.config, "precision": precision}
        try:
            found = candidates(replace(asked, **how), True).plans[0]
        except (ValueError, IndexError):
            return None
        return found if found.config == p.config else None

    found = like(leader, leader.precision)
    if not found or not leader.fallback:
        return found
    again = like(leader.fallback, "fp32_ffma")
    return PlanWithFallback.of(found.primary, again) if again else None


def _outputs(part: Part, direction: str) -> int:
    """Elements of a channel that a part computes."""
    return math.prod(len(range(s.start, s.stop, s.step)) for s in part.of(NAMES[direction][2]))


def _phase(plan: Plan, part: Part, request: Request) -> Phase:
    a, _, out = NAMES[request.direction]
    return Phase(plan, _places(part.of(a)), _places(part.of(out)))


def _places(slices: tuple[slice, ...]) -> tuple[tuple[int, int], ...]:
    """Where slices begin and by which steps they go, of three dimensions."""
    return ((0, 1),) * (3 - len(slices)) + tuple((s.start, s.step) for s in slices)


def _together(leader: Plan, follower: Plan) -> bool:
    """Whether both have the same kernels and transformed filter, and read arrays where they lie."""
    size = leader.prepared_size, leader.shared()
    if (
        leader.regular_rows
        or leader.plane_step
        or (follower.prepared_size, follower.shared()) != size
    ):
        return False
    return follower.source() == leader.source()
