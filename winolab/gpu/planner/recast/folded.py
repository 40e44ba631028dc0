"""Correlations to few channels as products of every tap, then sums of these: networks' last layers,
and backward data of their first.

A filter's rows, one a tap and a result's channel, are as many filters of one tap. Their products,
by another plan, stand in the workspace in FP32, and a kernel adds up those that a result has, each
at another position. Blocks of Tensor Cores are full then, where few results would leave them
nearly empty, and x is read once for all taps. Windows that meet padding do not multiply it: NaN
and infinity of w reach what they are multiplied by alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from winolab.algorithm import Problem
from winolab.arguments.words import plural
from winolab.gpu.params import MOST, VECTOR, Kernels, View, aligned
from winolab.gpu.planner.correlation import CORRELATIONS, three
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.ranking import WORTH
from winolab.gpu.planner.rates import copying
from winolab.gpu.planner.recast.computing import BesideAnother, Choices, within
from winolab.gpu.planner.recast.fold_kernels import Fold, FoldUnit, add_up, write_filter
from winolab.gpu.planner.request import ITEMSIZE, Plan, Request
from winolab.ref.arithmetic.split import Scale

FEW, FEWEST_TAPS = 8, 3  # channels of the result, at most; taps, at least
# Columns of a tap of the depth: with 147, of 7×7 taps to three channels, a call of one image took
# 46 µs for a predicted 24 (docs/notes/124).
MOST_COLUMNS = 96
WIDE = 8  # columns that products are filled up to: vectors of all dtypes
# What sums take beside a copy of products and results: instructions of a thread for a position's
# tap, for its sum of a channel, and for dividing by strides; launches, of which a small call waits
# for its first loads as for another. All 15 that an H200 timed were within 1.17 of it
# (docs/notes/124).
A_TAP, A_SUM, A_DIVISION, LAUNCHES = 33, 20, 33, 3


@dataclass(frozen=True)
class FoldedPlan(BesideAnother):
    """One call whose ``products`` of every tap another plan computes."""

    direction: str
    problem: Problem
    products: Plan
    stored: str  # the result's dtype: products are in float32

    namespace = "fold"

    @property
    def computing(self) -> Plan:
        """The plan of the products."""
        return self.products

    @property
    def kernel(self) -> str:
        """The plan's, and of how many taps."""
        return f"{self.products.kernel} of {plural(math.prod(self.problem.filter), 'tap')}"

    @property
    def solved(self) -> Problem:
        """The problem that kernels compute."""
        return self.products.solved

    @property
    def out_dtype(self) -> str:
        return self.stored

    @property
    def split_sums(self) -> tuple[tuple[float, int], ...]:
        """In how many parts sums are: the plan's, of every tap."""
        taps = math.prod(self.problem.filter)
        return tuple((share, parts * taps) for share, parts in self.products.split_sums)

    @property
    def merges_pixels(self) -> bool:
        """Whether pixels of x's rows lie side by side: it is told of rows alone whether they begin
        at vectors."""
        return self.direction == "forward"

    @property
    def predicted(self) -> float:
        """Seconds, sums and the filter's rows included."""
        return self.products.predicted + _beside(self._fold, self.products, self.out_dtype)

    @property
    def _columns(self) -> int:
        p = self.products.problem
        return p.in_channels if self._fold.rotated else p.out_channels

    @property
    def _array(self) -> int:
        return 4 * self.problem.batch * math.prod(self._fold.positions) * self._columns

    @property
    def _filter(self) -> int:
        return self._size * math.prod(self.products.problem.w_shape)

    @cached_property
    def _fold(self) -> Fold:
        return Fold(self.problem, self.direction)

    @cached_property
    def _unit(self) -> FoldUnit:
        return self._fold.unit(self._size, self.out_dtype)

    def scaled(self, scale: Scale | None) -> FoldedPlan:
        """The plan with the caller's scale where its products are split."""
        return replace(self, products=self.products.scaled(scale)) if scale else self

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all on the current stream."""
        z = self._products_at(workspace + aligned(self.products.workspace))
        rows = self._write_filter(kernels, b, z.address + aligned(self._array))
        self.products.launch(kernels, a, rows, z, workspace, index)
        add_up(kernels, self._fold, z, out)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """As ``launch``, with what ``prepare`` made."""
        z = self._products_at(workspace + self._before)
        self._run_other(kernels, a, prepared, z, workspace, index)
        add_up(kernels, self._fold, z, out)

    def _write_filter(self, kernels: Kernels, b: View, place: int) -> View:
        write_filter(kernels, self._fold, b, place, self._columns)
        return self._filter_at(place)

    def _products_at(self, address: int) -> View:
        pitch, sizes = self._columns, three(self._fold.positions, 1)
        return View(address, tuple(pitch * math.prod(sizes[i:]) for i in range(4)))

    def _filter_at(self, address: int) -> View:
        channels = self.products.problem.in_channels
        return View(address, (*(channels,) * 4, 1))

    def __str__(self) -> str:
        return "\n".join(
            [
                self.problem.told(self.direction),
                f"products of {plural(math.prod(self.problem.filter), 'tap')}, then their sums:",
                str(self.products),
                f"with sums {self.workspace} B workspace, predicted {self.predicted * 1e6:.1f} µs",
            ]
        )


def products_problem(p: Problem, direction: str) -> Problem:
    """The problem of one tap whose result has a column for every tap."""
    fold, ones = Fold(p, direction), (1,) * p.ndim
    columns = fold.columns(WIDE)
    sides = (columns, p.out_channels) if fold.rotated else (p.in_channels, columns)
    return Problem(p.batch, *sides, fold.positions, ones, ones, ((0, 0),) * p.ndim, ones, 1)


def _beside(fold: Fold, products: Plan, out_dtype: str) -> float:
    """Seconds of the filter's rows and of the sums."""
    p = fold.problem
    positions = p.batch * math.prod(fold.results)
    read = 4 * math.prod(products.problem.x_shape if fold.rotated else products.problem.y_shape)
    moved = copying(products.device, read + ITEMSIZE[out_dtype] * positions * fold.few)
    divided = fold.rotated and {*p.stride} != {1}
    instructions = A_TAP + A_SUM * fold.few + A_DIVISION * divided
    lanes = products.device.fp32_peak / 2
    added = positions * math.prod(p.filter) * instructions / lanes
    return LAUNCHES * MODEL.device.launch + moved + added


def folded(
    request: Request, near: bool, least: float, candidates: Callable[[Request, bool], Choices]
) -> Iterator[FoldedPlan]:
    """Plans where they are predicted to be WORTH it beside others that take ``least`` seconds, of a
    request that leaves the algorithm to the planner, whose ``candidates`` are."""
    p, direction = request.problem, request.direction
    named = request.algorithm or request.config or request.planes
    if named or direction not in CORRELATIONS or p.groups > 1 or p.empty:
        return
    fold, vector = Fold(p, direction), VECTOR // ITEMSIZE[request.dtype]
    unit = fold.rotated or {*p.stride} == {1}
    many = p.out_channels if fold.rotated else p.in_channels
    few = fold.few <= FEW and math.prod(p.filter) >= FEWEST_TAPS and many % vector == 0
    if not (unit and few) or min(*fold.positions, *fold.results) < 1:
        return
    inner = products_problem(p, direction)
    fits = fold.chunk <= MOST_COLUMNS and fold.shared_memory <= request.device.shared_memory
    counted = inner.x_shape, inner.w_shape, inner.y_shape, (p.batch, *fold.results)
    if not fits or max(map(math.prod, counted)) > MOST:
        return
    read = request.aligned_outputs if fold.rotated else request.aligned_rows
    limit, size = request.workspace_limit, 4 * p.batch * math.prod(fold.positions)
    if limit is not None:
        limit -= aligned(size * fold.columns(WIDE)) + 4 * math.prod(inner.w_shape)
        if limit < 0:
            return
    asked = replace(
        request, problem=inner, out_dtype="float32", tolerance=None, finished=False,
        aligned=request.aligned if read is None else read, aligned_maps=None,
        aligned_outputs=None, aligned_rows=None, workspace_limit=limit,
    )  # fmt: skip
    for plan in within(asked, near, WORTH * least, candidates):
        found = FoldedPlan(direction, p, plan, request.stored)
        if found.predicted <= WORTH * least:
            yield found
