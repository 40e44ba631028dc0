"""Pixels of a row as one: the bits of the merged problem where arrays lie, results against FP64,
gaps and unaligned rows, filters kept, and where the planner takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import on_gpu, operands
from tests.gpu.planner.recast.bounds import check_bound
from tests.gpu.planner.recast.choices import LONG
from tests.gpu.planner.recast.merged_plans import planned
from tests.gpu.support.pretended import Array
from winolab.algorithm import Direct, Problem
from winolab.device import H100, datasheet
from winolab.gpu.planner.planner import Choice, candidates, plan
from winolab.gpu.planner.recast.merged import MergedPlan, merged, merged_problem
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import planned as runtime
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.cache import plans as kept
from winolab.problem import shapes

DIRECTIONS = ("forward", "backward_data", "backward_filter")
PROBLEMS = {
    "patches": Problem.of((2, 12, 16, 3), (16, 4, 4, 3), stride=4),
    "halves": Problem.of((2, 10, 12, 16), (24, 2, 2, 16), stride=2),
    "left over": Problem.of((2, 9, 11, 8), (16, 3, 2, 8), stride=(1, 2), padding=((1, 1), (0, 0))),
    "row": Problem.of((2, 39, 8), (16, 3, 8), stride=3),
    "depths": Problem.of((1, 4, 6, 8, 8), (16, 2, 2, 2, 8), stride=2),
}
CASES = [
    *((name, "fp32", way) for name in PROBLEMS for way in DIRECTIONS),
    ("halves", "fp32_split", "forward"), ("halves", "fp32_split", "backward_filter"),
    ("depths", "fp32_split", "backward_data"), ("row", "fp16", "forward"),
    ("halves", "fp16", "backward_data"), ("depths", "bf16", "backward_filter"),
]  # fmt: skip
CASES.remove(("left over", "fp32", "backward_data"))  # has no such plan
CASES.remove(("patches", "fp32", "backward_filter"))
CASES.append(("patches", "fp16", "backward_filter"))


def check(name: str, precision: str, direction: str, execute: Callable) -> None:
    p = planned(PROBLEMS[name], direction, precision)
    a, b = operands(p.problem, direction, precision)
    y = execute(p, a, b)
    check_bound(p, a, b, y)
    few = merged_problem(p.problem)
    cut = {"x": p.problem.x_shape, "w": p.problem.w_shape}
    now = {"x": few.x_shape, "w": few.w_shape}
    width = few.input[-1] * p.problem.stride[-1]  # without what is left over

    def one(v: np.ndarray) -> np.ndarray:
        for name, shape in cut.items():
            if v.shape == shape:
                whole = v[..., :width, :] if name == "x" else v
                return np.ascontiguousarray(whole).reshape(now[name])
        return v

    straight = execute(p.merged, one(a), one(b))
    assert np.array_equal(one(y), straight)


@pytest.mark.parametrize(("name", "precision", "direction"), CASES)
def test_results_have_the_bits_of_the_merged_problem(name, precision, direction) -> None:
    check(name, precision, direction, lambda p, a, b: hosted.execute(p, a, b, dtype=p.out_dtype))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "precision", "direction"), CASES)
def test_results_on_a_gpu_have_the_bits_of_the_merged_problem(name, precision, direction) -> None:
    check(name, precision, direction, on_gpu)


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_a_filter_is_kept(direction: str) -> None:
    """A call has the bits of a call with the filter transformed beforehand."""
    p = planned(PROBLEMS["row"], direction, "fp32_split", apart=True)
    a, b = operands(p.problem, direction, "fp32")
    y = hosted.execute(p, a, b)
    assert (hosted.execute(p, a, b, apart=True) == y).all()


def test_the_planner_takes_it_where_nobody_says_how() -> None:
    """A U-Net's halving, whose pixels are 64 bytes; not where taps meet pixels twice, where rows
    are padded or dilated, of groups, nor dx that has pixels left over."""
    halves = Problem.of((2, 128, 128, 128, 32), (64, 2, 2, 2, 32), stride=2)
    request = Request(halves, "backward_data", datasheet("h200"), precision="fp16")
    found = plan(request)
    assert isinstance(found, MergedPlan)
    assert found.kernel.endswith(" on pixels of 2")
    assert "2 pixels of a row as one:" in str(found)
    assert kept._unpacked(kept.packed(found)) == found
    for none in (
        replace(request, algorithm=Direct()),
        replace(request, config=found.config),
        replace(request, problem=replace(halves, input=(128, 128, 129))),
        replace(request, problem=replace(halves, filter=(2, 2, 3), input=(128, 128, 127))),
        replace(request, problem=replace(halves, padding=((0, 0), (0, 0), (1, 1)))),
        replace(request, problem=replace(halves, stride=(2, 2, 1))),
        replace(request, problem=replace(halves, groups=2)),
        replace(request, problem=replace(halves, filter=(2, 2, 2), dilation=(1, 1, 2))),
    ):
        assert not list(merged(none, True, LONG, candidates))
    left_over = replace(
        request, direction="forward", problem=replace(halves, input=(128, 128, 129))
    )
    assert list(merged(left_over, True, LONG, candidates))
    waiting = replace(request, direction="forward", in_phases=False, precision="fp32_split")
    assert not any(p.flags for p in merged(waiting, False, LONG, candidates))


def test_vectors_are_asked_for_where_rows_begin_at_them() -> None:
    """Three channels are no vector, four pixels of them are."""
    p = PROBLEMS["patches"]
    asked = []

    def seen(request: Request, near: bool) -> Choice:
        asked.append((request.aligned, request.aligned_outputs))
        return candidates(request)

    request = Request(p, "forward", H100, aligned=False, aligned_outputs=True, aligned_rows=True)
    one = replace(p, in_channels=1)
    for each in (request, replace(request, aligned_rows=False), replace(request, aligned_rows=None),
                 replace(request, aligned_outputs=False),
                 replace(request, precision="fp16", problem=one)):  # fmt: skip
        list(merged(each, False, LONG, seen))
    assert [aligned for aligned, _ in asked] == [True, False, False, False, False]


@pytest.mark.parametrize("gap", [0, 4, 5])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["halves", "row"])
def test_arrays_with_gaps_are_copied(library, monkeypatch, name, direction, gap) -> None:
    """Gaps between pixels or taps, which no vectors divide but those of y and dy, which are not
    copied, or no gap; the filter kept, too."""
    problem = PROBLEMS[name]
    once = name == "row" and direction == "forward"
    p = planned(problem, direction, "fp32_split", apart=once)
    monkeypatch.setattr(runtime, "planned", lambda request, apart=False: p)
    a, b = operands(problem, direction, "fp32")
    y = hosted.execute(p, a, b)

    def wider(v: np.ndarray) -> Array:
        fits = 4 * (gap > 0) if v.shape == problem.y_shape else gap
        whole = np.full((*v.shape[:-1], v.shape[-1] + fits), np.nan, v.dtype)
        whole[..., : v.shape[-1]] = v
        return Array(whole[..., : v.shape[-1]])

    out = wider(np.full_like(y, np.nan))
    call = getattr(winolab, f"conv_{direction}")
    shape = () if direction == "forward" else (shapes(direction, problem)[2],)
    more = {"out": out, "stride": problem.stride, "precision": "fp32_split"}
    call(wider(a), wider(b), *shape, **more)
    assert np.array_equal(out.values, y)
    if once:
        del more["out"]
        filters = winolab.prepare_filter(wider(b), a.shape, **more)
        assert np.array_equal(winolab.conv_forward(wider(a), filters, **more).values, y)


def test_rows_say_whether_they_begin_at_vectors() -> None:
    """Those of pixels that lie side by side, or in a copy; the axis of one element says nothing."""
    dense = ArrayLayout((2, 3, 4, 3), (36, 12, 3, 1), True)
    assert dense.side_by_side
    assert dense.aligned_rows(4)
    assert not dense.aligned_rows(2)
    assert not replace(dense, address_aligned=False).aligned_rows(4)
    assert not replace(dense, strides=(38, 12, 3, 1)).aligned_rows(4)
    gaps = replace(dense, strides=(60, 20, 5, 1), address_aligned=False)
    assert not gaps.side_by_side
    assert gaps.aligned_rows(4)  # of a copy
    one = ArrayLayout((1, 1, 4, 3), (7, 5, 3, 1), True)
    assert one.aligned_rows(4)
    assert prod(one.shape) == 12
