"""Strided correlations whose phases are channels: one of unit stride, as transforms run.

A stride of s along a dimension makes s phases of x and of the filter, of which a phase of x meets
one of the filter; DWM adds up what they give. Stacked as channels they are one sum: y is the
correlation of a map of a pixel for s, which has s times the channels, with ⌈r / s⌉ taps; a filter
that is no whole phases long is filled up with zeros. Backward data gives the smaller map's
gradient, which a copy takes apart. Zeros meet pixels of x that the filter does not: where one is
infinite or NaN, so is the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from winolab.algorithm import Problem
from winolab.arguments.epilogue import Epilogue
from winolab.arguments.words import plural
from winolab.device import Device
from winolab.gpu.params import MOST, VECTOR, Kernels, View, aligned, in_order
from winolab.gpu.planner.correlation import CORRELATIONS, three
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.fallback import few_products
from winolab.gpu.planner.rates import copying
from winolab.gpu.planner.recast.computing import BesideAnother, Choices
from winolab.gpu.planner.recast.phase_copies import MOST_PITCH, Side, StackUnit, copy
from winolab.gpu.planner.request import ITEMSIZE, Plan, Request
from winolab.ref.arithmetic.split import Scale

WORTH, WORTH_APART = 0.9, 0.8  # times the least predicted time of others, at most
# Times a copy's time where channels are no whole vectors: 16 µs of 12.5, and 24 of 10 (note 117).
# There what is predicted WORTH, but not WORTH_APART, takes 1.08 to 1.3 times as long as others.
APART = {"forward": 1.5, "backward_data": 2.4}


@dataclass(frozen=True)
class Axis:
    """A dimension: taps ``r`` are ``taps`` for each of ``phases``; pixel i of phase q of the
    smaller map, of ``stacked`` pixels, is x's pixel ``step`` i + q − ``shift``; ``padding`` before
    and behind it."""

    step: int
    phases: int
    shift: int
    stacked: int
    taps: int
    padding: tuple[int, int]

    @classmethod
    def of(cls, size: int, r: int, step: int, low: int, outputs: int) -> Axis:
        """The dimension by x's size, taps, stride, padding before, and outputs. Whole pixels of
        padding stay padding; what is cut of x is not there, nor what is behind all taps.

        >>> Axis.of(224, 7, 2, 3, 112)
        Axis(step=2, phases=2, shift=1, stacked=113, taps=4, padding=(1, 1))
        """
        before, taps = max(0, low // step), -(-r // step)
        shift, read = low - step * before, outputs - 1 + taps - before
        stacked = max(0, min(-(-(size + shift) // step), read))
        return cls(step, min(step, r), shift, stacked, taps, (before, read - stacked))


def axes(p: Problem) -> tuple[Axis, ...]:
    """A problem's dimensions."""
    low = (ends[0] for ends in p.padding)
    each = zip(p.input, p.filter, p.stride, low, p.output, strict=True)
    return tuple(Axis.of(*sizes) for sizes in each)


def stacked_problem(p: Problem, itemsize: int) -> Problem | None:
    """The correlation of unit stride, whose channels are filled up to whole vectors of elements of
    so many bytes; None where its map would have no pixel."""
    every = axes(p)
    if any(axis.stacked < 1 for axis in every):
        return None
    channels, vector = p.in_channels * math.prod(a.phases for a in every), VECTOR // itemsize
    return replace(
        p,
        in_channels=-(-channels // vector) * vector,
        input=tuple(axis.stacked for axis in every),
        filter=tuple(axis.taps for axis in every),
        padding=tuple(axis.padding for axis in every),
        stride=(1,) * p.ndim,
    )


@dataclass(frozen=True)
class StackedPlan(BesideAnother):
    """One call whose ``stacked`` problem another plan computes, between copies."""

    direction: str
    problem: Problem
    stacked: Plan

    namespace = "phases"

    @property
    def computing(self) -> Plan:
        """The plan of the stacked problem."""
        return self.stacked

    @property
    def kernel(self) -> str:
        """The plan's, and how many phases it has for channels."""
        return f"{self.stacked.kernel} on {plural(self._phases, 'phase')}"

    @property
    def solved(self) -> Problem:
        """The problem that kernels compute."""
        return self.stacked.solved

    @property
    def predicted(self) -> float:
        """Seconds, copies included."""
        return self.stacked.predicted + _copies(self.problem, self.stacked.problem, self._size,
                                                self.direction, self.device)  # fmt: skip

    @property
    def _forward(self) -> bool:
        return self.direction == "forward"

    @property
    def _array(self) -> int:
        size = self._size if self._forward else ITEMSIZE[self.out_dtype]
        return size * math.prod(self.stacked.problem.x_shape)

    @property
    def _filter(self) -> int:
        return self._size * math.prod(self.stacked.problem.w_shape)

    @property
    def _phases(self) -> int:
        return math.prod(axis.phases for axis in self._axes)

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        return axes(self.problem)

    @cached_property
    def _unit(self) -> StackUnit:
        return StackUnit(self._size)

    def scaled(self, scale: Scale | None) -> StackedPlan:
        """The plan with the caller's scale where its products are split."""
        return replace(self, stacked=self.stacked.scaled(scale)) if scale else self

    def with_epilogue(self, epilogue: Epilogue) -> StackedPlan | None:
        """The plan whose kernels apply it as they store y; None where they cannot."""
        found = self.stacked.with_epilogue(epilogue) if self._forward else None
        return replace(self, stacked=found) if found else None

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all on the current stream."""
        place = workspace + aligned(self.stacked.workspace)
        w = self._as_it_is(b)
        if not w:
            w = self._write_filter(kernels, b, place + aligned(self._array))
        self._between(
            kernels, a, out, place,
            lambda x, y: self.stacked.launch(kernels, x, w, y, workspace, index),
        )  # fmt: skip

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """As ``launch``, with what ``prepare`` made."""
        self._between(
            kernels, a, out, workspace + self._before,
            lambda x, y: self._run_other(kernels, x, prepared, y, workspace, index),
        )  # fmt: skip

    def _between(
        self,
        kernels: Kernels,
        a: View,
        out: View,
        place: int,
        compute: Callable[[View, View], None],
    ) -> None:
        """Compute on the smaller map at that address, stacked before or taken apart behind."""
        p, near_pitch = self.problem, self.stacked.problem.in_channels
        near = View(place, _dense(self.stacked.problem.input, near_pitch))
        whole = a if self._forward else out
        size = self._size if self._forward else ITEMSIZE[self.out_dtype]
        how = near, self._sides(whole.strides, False), p.batch, p.in_channels, near_pitch, size
        if self._forward:
            copy(kernels, a, *how)
            compute(near, out)
        else:
            compute(a, near)
            copy(kernels, out, *how, back=True)

    def _write_filter(self, kernels: Kernels, b: View, place: int) -> View:
        p, near = self.problem, self._filter_at(place)
        copy(kernels, b, near, self._sides(b.strides, True), p.out_channels, p.in_channels,
             self.stacked.problem.in_channels, self._size)  # fmt: skip
        return near

    def _filter_at(self, address: int) -> View:
        p = self.stacked.problem
        return View(address, (*_dense(p.filter, p.in_channels), 1))

    def _as_it_is(self, b: View) -> View | None:
        """The filter, where its taps already lie as the phases of one tap do."""
        p, unit_problem = self.problem, self.stacked.problem
        sizes = p.out_channels, *three(p.filter, 1), p.in_channels
        dense = in_order(sizes, b.strides, 1) and b.in_vectors(VECTOR, (), self._size)
        whole = unit_problem.in_channels == self._phases * p.in_channels
        one = max(unit_problem.filter) == 1
        return self._filter_at(b.address) if one and whole and dense else None

    def _sides(self, strides: Sequence[int], of_filter: bool) -> list[Side]:
        """The dimensions of a copy of a map, or of the filter, with these strides."""
        p, axes = self.problem, self._axes
        taps = [(r, a.taps, a.step, a.phases, 0) for r, a in zip(p.filter, axes, strict=True)]
        pixels = [(n, a.stacked, a.step, a.phases, a.shift)
                  for n, a in zip(p.input, axes, strict=True)]  # fmt: skip
        given = [(1, 1, 1, 1, 0)] * (3 - p.ndim) + (taps if of_filter else pixels)
        return [Side(s, *each) for s, each in zip(strides[1:4], given, strict=True)]

    def __str__(self) -> str:
        return "\n".join(
            [
                self.problem.told(self.direction),
                f"{plural(self._phases, 'phase')} of the stride as channels:",
                str(self.stacked),
                f"with copies {self.workspace} B workspace, predicted "
                f"{self.predicted * 1e6:.1f} µs",
            ]
        )


def _dense(sizes: tuple[int, ...], pitch: int) -> tuple[int, ...]:
    """Strides of a dense map, or of a filter but for its channels."""
    return tuple(pitch * math.prod(three(sizes, 1)[i:]) for i in range(4))


def _apart(p: Problem, size: int) -> bool:
    """Whether channels of so many bytes are no whole vectors, so that copies go by elements."""
    return p.in_channels % (VECTOR // size) > 0


def _copies(p: Problem, near: Problem, size: int, direction: str, device: Device) -> float:
    """Seconds of the copies of x or dx, and of the filter where one is filled up."""
    whole, few = math.prod(p.x_shape), math.prod(near.x_shape)
    moved = few + (min(whole, few) if direction == "forward" else whole)
    apart = APART[direction] if _apart(p, size) else 1
    seconds = MODEL.device.launch + apart * copying(device, size * moved)
    if max(near.filter) > 1 or math.prod(near.w_shape) != math.prod(p.w_shape):
        filters = math.prod(p.w_shape) + math.prod(near.w_shape)
        seconds += MODEL.device.launch + copying(device, size * filters)
    return seconds


def stacked(
    request: Request, least: float, candidates: Callable[[Request, bool], Choices]
) -> Iterator[StackedPlan]:
    """Plans on phases, a kernel's first, where they are predicted to be WORTH it beside plans that
    take ``least`` seconds, of a request that leaves the algorithm to the planner, whose
    ``candidates`` are."""
    p, direction = request.problem, request.direction
    free = request.in_phases and not (request.algorithm or request.config)
    if not free or direction not in CORRELATIONS or max(p.stride) == 1 or p.empty:
        return
    size = ITEMSIZE[request.dtype]
    same = direction == "forward" or request.stored == request.dtype
    near = stacked_problem(p, size) if max(p.dilation) == p.groups == 1 and same else None
    if not near or size * near.in_channels > MOST_PITCH:
        return
    if max(math.prod(v) for v in (p.x_shape, near.x_shape, near.w_shape)) > MOST:
        return
    most = (WORTH_APART if _apart(p, size) else WORTH) * least
    if _copies(p, near, size, direction, request.device) >= most:
        return
    limit = request.workspace_limit
    if limit is not None:
        limit -= aligned(size * math.prod(near.x_shape)) + size * math.prod(near.w_shape)
        if limit < 0:
            return
    ends = request.aligned_outputs
    asked = replace(
        request, problem=near, tolerance=None, aligned=request.aligned if ends is None else ends,
        aligned_maps=None, workspace_limit=limit, planes=False,
    )  # fmt: skip
    try:
        plans = candidates(asked, True).plans
    except ValueError:
        return  # none counts so far
    lossy = few_products(p, direction)
    served = (q for q in plans if not (q.regular_rows or q.plane_step))
    plans = [q for q in served if not (q.checks_accuracy and lossy)]
    first = {q.kernel: q for q in reversed(plans)}
    made = (StackedPlan(direction, p, q) for q in plans if first.get(q.kernel) is q)
    yield from (q for q in made if q.predicted <= most)
