"""Products of every tap, then their sums: results on the CPU against FP64 within what their steps
may err, filters kept, arrays with gaps, and where the planner takes it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import on_gpu, operands
from tests.gpu.planner.recast.bounds import check_bound
from tests.gpu.planner.recast.choices import LONG, with_filters
from tests.gpu.planner.recast.lying import lying
from tests.gpu.support.pretended import Array
from winolab.algorithm import Direct, Problem
from winolab.device import H100, datasheet
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.recast.fold_kernels import Fold, write_filter
from winolab.gpu.planner.recast.folded import (
    FEW,
    MOST_COLUMNS,
    WIDE,
    FoldedPlan,
    folded,
    products_problem,
)
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import planned as runtime
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.cache import plans as kept
from winolab.problem import shapes
from winolab.ref.algorithms import convolution
from winolab.ref.error.bounds import bound

# Last layers and first ones, by which backward data is of few channels: more results than a block
# has along rows and columns, taps of one to three dimensions, dilation, strides, several images,
# padding of one side and none, maps that are cut, taps that meet nothing.
FORWARD = {
    "last": Problem.of((2, 11, 37, 16), (3, 3, 3, 16), padding=1),
    "row": Problem.of((2, 300, 8), (2, 5, 8), padding=((4, 0),)),
    "depths": Problem.of((1, 5, 9, 10, 8), (1, 3, 3, 3, 8), padding=(0, 1, 1)),
    "dilated": Problem.of((1, 12, 14, 8), (5, 3, 2, 8), padding=2, dilation=(2, 3)),
    "eight": Problem.of((1, 6, 7, 8), (8, 2, 2, 8)),
    "cut": replace(Problem.of((1, 9, 12, 8), (3, 3, 3, 8)), padding=((-1, 2), (1, -3))),
}
BACKWARD = {
    "first": Problem.of((2, 11, 37, 3), (16, 3, 3, 3), padding=1),
    "stem": Problem.of((1, 19, 35, 3), (8, 5, 5, 3), padding=2, stride=2),
    "far": Problem.of((1, 16, 15, 1), (8, 2, 3, 1), stride=(5, 4)),
    "row": Problem.of((1, 600, 1), (16, 10, 1), stride=5),
    "depths": Problem.of((1, 6, 9, 10, 1), (8, 3, 3, 3, 1), padding=1, stride=(2, 1, 3)),
    "dilated": Problem.of((1, 13, 14, 4), (8, 3, 2, 4), padding=2, dilation=(2, 3), stride=(1, 2)),
    "cut": replace(Problem.of((1, 12, 13, 2), (8, 3, 3, 2)), padding=((-1, 2), (1, -3))),
}
PROBLEMS = {"forward": FORWARD, "backward_data": BACKWARD}
CASES = [
    *((direction, name, "fp32") for direction, some in PROBLEMS.items() for name in some),
    ("forward", "last", "fp32_split"), ("backward_data", "first", "fp32_split"),
    ("forward", "last", "fp16"), ("backward_data", "stem", "fp16"),
    ("forward", "depths", "bf16"), ("backward_data", "depths", "bf16"),
]  # fmt: skip


def planned(problem: Problem, direction: str, precision: str, apart: bool = False) -> FoldedPlan:
    """The fastest such plan, whatever else is faster; ``apart``: whose filter is transformed."""
    asked = Request(problem, direction, H100, None, precision)
    return next(folded(asked, False, LONG, with_filters(apart)))


def rows_of(w: np.ndarray, p: FoldedPlan) -> np.ndarray:
    """The filter of one tap, by its definition: columns by tap of the depth, each filled up with
    its first ones, in these by tap and channel."""
    fold = Fold(p.problem, p.direction)
    depth = fold.taps[0]
    taps = w.reshape(len(w), depth, -1, w.shape[-1])  # output channels, taps, channels
    few = taps if fold.rotated else np.moveaxis(taps, (0, 3), (3, 0))
    columns = few.reshape(len(few), depth, -1)
    total = products_problem(p.problem, p.direction)
    count = total.in_channels if fold.rotated else total.out_channels
    at = np.arange(count)
    found = columns[:, at // fold.chunk % depth, at % fold.chunk % columns.shape[2]]
    return (found if fold.rotated else found.T).reshape(total.w_shape)


def folded_sums(z: np.ndarray, p: FoldedPlan) -> np.ndarray:
    """Sums of columns, tap by tap."""
    fold, q = Fold(p.problem, p.direction), p.problem
    z = z.reshape(q.batch, *fold.positions, -1)
    y = np.zeros((q.batch, *fold.results, fold.few))
    lows = [low for low, _ in q.padding]
    for number, tap in enumerate(np.ndindex(*q.filter)):
        depth = tap[0] if q.ndim == 3 else 0
        behind = number - depth * fold.taps[1] * fold.taps[2]
        first = depth * fold.chunk + behind * fold.few
        for at in np.ndindex(*fold.positions):
            if fold.rotated:
                to = [i * s + t * d - low for i, s, t, d, low in
                      zip(at, q.stride, tap, q.dilation, lows, strict=True)]  # fmt: skip
            else:
                to = [i - t * d + low for i, t, d, low in
                      zip(at, tap, q.dilation, lows, strict=True)]  # fmt: skip
            if all(0 <= i < n for i, n in zip(to, fold.results, strict=True)):
                y[:, *to] += z[:, *at, first : first + fold.few]
    return y


def check(p: FoldedPlan, a: np.ndarray, b: np.ndarray, y: np.ndarray) -> None:
    """Within the products' bound, summed, and what sums of so many in FP32 and the result's
    rounding may err beside: n u / (1 − n u) of the magnitudes (Higham 2002, 4.2)."""
    exact = getattr(convolution, p.direction)(a.astype(float), b.astype(float), p.problem)
    q: Any = p.products.primary
    rows = rows_of(b.astype(float), p)
    z = getattr(convolution, p.direction)(a.astype(float), rows, q.problem)
    assert np.allclose(folded_sums(z, p), exact)
    limit = bound(a.astype(float), rows, q.problem, "direct", q.simulated, direction=p.direction)
    n = math.prod(p.problem.filter) * 2.0**-24
    limit = folded_sums(limit + n / (1 - n) * (np.abs(z) + limit), p)
    u, least = {"float32": (0.0, 0.0), "float16": (2.0**-11, 2.0**-25),
                "bfloat16": (2.0**-8, 0.0)}[p.out_dtype]  # fmt: skip
    off = np.abs(y.astype(float) - exact)
    assert (off <= limit + u * (np.abs(exact) + limit) + least).all()
    check_bound(p, a, b, y)  # what calls say


@pytest.mark.parametrize(("direction", "name", "precision"), CASES)
def test_results_are_those_of_fp64(direction: str, name: str, precision: str) -> None:
    p = planned(PROBLEMS[direction][name], direction, precision)
    a, b = operands(p.problem, direction, precision)
    check(p, a, b, hosted.execute(p, a, b, dtype=p.out_dtype))


@pytest.mark.gpu
@pytest.mark.parametrize(("direction", "name", "precision"), CASES)
def test_results_on_a_gpu_are_those_of_fp64(direction: str, name: str, precision: str) -> None:
    p = planned(PROBLEMS[direction][name], direction, precision)
    a, b = operands(p.problem, direction, precision)
    check(p, a, b, on_gpu(p, a, b))


@pytest.mark.parametrize("seed", range(8))
def test_random_problems(seed: int) -> None:
    """Any taps, padding, strides and dilation."""
    rng, direction = Random(seed), ("forward", "backward_data")[seed % 2]
    while True:
        ndim = rng.choice((1, 2, 2, 3))
        sizes = [rng.randint(1, 40 if ndim < 3 else 7) for _ in range(ndim)]
        taps = [rng.randint(1, 5 if ndim < 3 else 3) for _ in range(ndim)]
        steps = [rng.randint(1, 3) for _ in range(2 * ndim)]
        stride, dilation = steps[:ndim], steps[ndim:]
        stride = stride if direction == "backward_data" else [1] * ndim
        ends = [(rng.randint(0, 4), rng.randint(0, 4)) for _ in range(ndim)]
        reach = [(r - 1) * d + 1 for r, d in zip(taps, dilation, strict=True)]
        wide = all(n + sum(e) >= r for n, e, r in zip(sizes, ends, reach, strict=True))
        if not wide or math.prod(taps) < 3:
            continue
        few = rng.randint(1, FEW)
        channels, filters = (8, few) if direction == "forward" else (few, 8)
        problem = Problem.of(
            (rng.randint(1, 2), *sizes, channels), (filters, *taps, channels),
            padding=ends, stride=stride, dilation=dilation,
        )  # fmt: skip
        fold = Fold(problem, direction)
        if fold.chunk <= MOST_COLUMNS and fold.shared_memory <= H100.shared_memory:
            break
    p = planned(problem, direction, "fp32")
    a, b = operands(problem, direction, "fp32")
    check(p, a, b, hosted.execute(p, a, b))


@pytest.mark.parametrize(("direction", "name"), [("forward", "last"), ("backward_data", "stem")])
@pytest.mark.parametrize("apart", [False, True])
def test_a_filter_is_kept(direction: str, name: str, apart: bool) -> None:
    """A call has the bits of a call with the filter's rows made, and transformed, beforehand."""
    precision = "fp32_split" if apart else "fp32_ffma"
    p = planned(PROBLEMS[direction][name], direction, precision, apart=apart)
    assert (p.products.prepared_size > 0) == apart
    assert p.workspace >= p.beside + p.prepared_size
    a, b = operands(p.problem, direction, "fp32")
    y = hosted.execute(p, a, b)
    assert (hosted.execute(p, a, b, apart=True) == y).all()


@pytest.mark.parametrize(("direction", "name"), [("forward", "last"), ("backward_data", "first")])
def test_filters_and_results_lie_anywhere(direction: str, name: str) -> None:
    """Gaps between taps and between the result's pixels, which nothing has to divide."""
    p = planned(PROBLEMS[direction][name], direction, "fp32")
    a, b = operands(p.problem, direction, "fp32")
    places = []
    for shape, gap in zip(
        (a.shape, b.shape, shapes(direction, p.problem)[2]), (0, 3, 5), strict=True
    ):
        strides = [shape[-1] + gap]
        for n in reversed(shape[1:-1]):
            strides.append(strides[-1] * n + 2 * gap)
        places.append((ArrayLayout(shape, (*reversed(strides), 1), gap == 0), 0))
    y = hosted.execute(p, a, b)
    assert (hosted.execute(p, a, b, places=places) == y).all()


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_rows_are_made_of_the_filter_alone(direction: str, levels: int) -> None:
    """Columns that the last level fills up are the filter's, too: what lies a level's stride behind
    it, NaN or nobody's memory, changed how split products are scaled, or was no address."""
    problem = PROBLEMS[direction]["depths"]
    p = planned(replace(problem, filter=(levels, *problem.filter[1:])), direction, "fp32")
    fold, columns = Fold(p.problem, direction), p.products.problem
    assert fold.columns(WIDE) > levels * fold.chunk
    _, b = operands(p.problem, direction, "fp32")
    far = (levels * 500, 500, 3 * b.shape[-1], b.shape[-1], 1)
    w = hosted.Guarded.of(b, (ArrayLayout(b.shape, far), 0))
    rows = hosted.Guarded(columns.w_shape, "float32")
    given = w.view(filter=True), rows.array.ctypes.data
    write_filter(hosted.loaded(p), fold, *given, fold.columns(WIDE))
    assert np.array_equal(rows.array, rows_of(b, p))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("direction", "name"), [("forward", "last"), ("backward_data", "first")])
def test_maps_begin_anywhere_where_the_filter_is_kept(
    library, monkeypatch, direction, name, first
) -> None:
    """Results of three channels are no vectors, what is read is: where it begins between two it is
    copied."""
    p = planned(PROBLEMS[direction][name], direction, "fp32_split", apart=True)
    assert p.products.prepared_size
    monkeypatch.setattr(runtime, "planned", lambda request, apart=False: p)
    how = {"padding": p.problem.padding, "precision": "fp32_split"}
    a, b = operands(p.problem, direction, "fp32")
    y = hosted.execute(p, a, b)
    kept_filter = winolab.prepare_filter(Array(b), p.problem.x_shape, direction=direction, **how)
    library.reordered()
    strides = tuple(n // a.itemsize for n in a.strides)
    shape = () if direction == "forward" else (p.problem.x_shape,)
    call = getattr(winolab, f"conv_{direction}")
    got = call(Array(lying(a, strides, first)), kept_filter, *shape, **how)
    assert np.array_equal(got.values, y)
    assert library.reordered() == ["a"] * first


def test_infinities_and_nan_stay_in_their_windows() -> None:
    """Those of x; those of w reach what they are multiplied by."""
    p = planned(FORWARD["last"], "forward", "fp32")
    a, b = operands(p.problem, "forward", "fp32")
    mark = np.zeros(a.shape)
    for at, value in (((0, 2, 4, 2), np.inf), ((1, 7, 33, 0), np.nan)):
        a[at], mark[at] = value, 1
    met = convolution.forward(mark, np.ones(b.shape), p.problem) > 0
    assert (~np.isfinite(hosted.execute(p, a, b)) == met).all()
    a, b = operands(p.problem, "forward", "fp32")
    b[1, 0, 0, 3] = np.nan  # whose tap meets padding along the first row and column
    y = hosted.execute(p, a, b)
    assert np.isnan(y[:, 1:, 1:, 1]).all()
    assert np.isfinite(y[..., [0, 2]]).all()
    assert np.isfinite(y[:, 0]).all()


def test_the_planner_takes_it_where_few_results_have_many_taps() -> None:
    """Backward data of a 3-D U-Net's first layer and a video decoder's last; not what is named,
    grouped, strided forward, of few taps, of channels that no vectors divide."""
    last = Problem.of((1, 22, 480, 832, 96), (3, 3, 3, 3, 96), padding=(0, 1, 1))
    request = Request(last, "forward", datasheet("h200"), aligned=False, aligned_rows=True)
    found = plan(request)
    assert isinstance(found, FoldedPlan)
    assert found.kernel.endswith(" of 27 taps")
    assert "products of 27 taps, then their sums:" in str(found)
    assert kept._unpacked(kept.packed(found)) == found
    first = Problem.of((2, 128, 128, 128, 1), (32, 3, 3, 3, 1), padding=1)
    back = replace(request, problem=first, direction="backward_data", aligned_outputs=True)
    for precision in ("fp32", "fp16", "bf16"):
        assert isinstance(plan(replace(back, precision=precision)), FoldedPlan)
    for none in (
        replace(request, algorithm=Direct()),
        replace(request, direction="backward_filter"),
        replace(request, problem=replace(last, groups=3)),
        replace(request, problem=replace(last, stride=(1, 1, 2))),
        replace(request, problem=replace(last, in_channels=95)),
        replace(request, problem=replace(last, out_channels=FEW + 1)),
        replace(request, problem=replace(last, filter=(1, 1, 2))),
        replace(request, problem=replace(last, filter=(1, 7, 7))),
        replace(request, workspace_limit=1 << 20),
    ):
        assert not list(folded(none, True, LONG, candidates))


def test_what_kernels_do_not_count_is_left_to_others() -> None:
    """Elements of the filter's rows, and blocks of results, of which one may have a single one."""
    channels = Problem.of((1, 8, 1 << 25), (8, 8, 1 << 25), padding=((3, 4),))
    apart = Problem.of((1 << 8, 1 << 23, 1, 1, 1), (4, 3, 1, 1, 1), stride=(9, 1, 1))
    for direction, more, less in (
        ("forward", channels, replace(channels, in_channels=1 << 24)),
        ("backward_data", apart, replace(apart, batch=1 << 7)),
    ):
        assert not list(folded(Request(more, direction, H100), True, LONG, candidates))
        assert list(folded(Request(less, direction, H100), True, LONG, candidates))


def test_products_are_filled_up_to_vectors() -> None:
    for direction, some in PROBLEMS.items():
        for problem in some.values():
            q = products_problem(problem, direction)
            fold = Fold(problem, direction)
            few = q.in_channels if fold.rotated else q.out_channels
            assert few % WIDE == 0
            assert few >= fold.taps[0] * fold.chunk >= math.prod(problem.filter) * fold.few
            assert {*q.filter} == {*q.stride} == {1}
    assert [Fold(FORWARD[n], "forward").tile for n in ("row", "last")] == [(1, 256), (8, 32)]


def test_blocks_meet_no_more_than_their_span() -> None:
    """The positions that a block's results meet, of every tap."""
    for direction, some in PROBLEMS.items():
        for problem in some.values():
            fold = Fold(problem, direction)
            if problem.ndim < 2:
                continue
            sides = zip(fold.tile, fold.span, problem.filter[-2:], strict=True)
            low = problem.padding[-2:]
            axes = zip(sides, problem.stride[-2:], problem.dilation[-2:], low, strict=True)
            for (tile, span, taps), s, d, (before, _) in axes:
                for start in range(0, 4 * tile, tile):
                    met = [
                        (i + before - t * d) // s if fold.rotated else i - before + t * d
                        for i, t in product(range(start, start + tile), range(taps))
                        if not fold.rotated or (i + before - t * d) % s == 0
                    ]
                    first = start - before
                    if fold.rotated:
                        first = (start + before - (taps - 1) * d) // s
                    assert first <= min(met)
                    assert max(met) < first + span
