"""Pixels of a row as one, by public calls of arrays that lie in odd ways: one channel, filters
apart whose rows begin anywhere or lie channels-first, filters at which no tensor map may point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu.families.depthwise.cases import operands
from tests.gpu.planner.recast.bounds import check_bound
from tests.gpu.planner.recast.choices import LONG
from tests.gpu.planner.recast.lying import lying
from tests.gpu.planner.recast.merged_plans import planned
from tests.gpu.support.pretended import Array
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.recast.merged import merged
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import planned as runtime
from winolab.gpu.runtime.array_layout import ArrayLayout


def taken(monkeypatch: Any, problem: Problem, direction: str, precision: str, **how: bool) -> Any:
    """The plan that every call gets."""
    p = planned(problem, direction, precision, **how)
    monkeypatch.setattr(runtime, "planned", lambda request, apart=False: p)
    return p


@pytest.mark.parametrize("strides", [(0, 0, 0, 0), (224, 56, 7, 7), (32, 8, 1, 5)])
def test_the_stride_of_one_channel_says_nothing(library, monkeypatch, strides) -> None:
    """One number that is all, pixels with gaps as wide, and pixels side by side, which stay."""
    problem = Problem.of((2, 4, 8, 1), (8, 2, 4, 1), stride=(2, 4))
    p = taken(monkeypatch, problem, "forward", "fp32")
    a, b = operands(problem, "forward", "fp32")
    a = lying(a, strides)
    y = winolab.conv_forward(Array(a), Array(lying(b, (8, 4, 1, 5))), stride=problem.stride)
    check_bound(p, a, b, y.values)
    assert library.reordered() == ["a"] * (strides[-1] != 5)


@pytest.mark.parametrize("strides", [(224, 56, 7, 7), (32, 8, 1, 5)])
def test_gradients_of_one_channel_are_written(library, monkeypatch, strides) -> None:
    problem = Problem.of((2, 4, 8, 1), (8, 2, 4, 1), stride=(2, 4))
    p = taken(monkeypatch, problem, "backward_data", "fp32")
    a, b = operands(problem, "backward_data", "fp32")
    out = lying(np.full(problem.x_shape, np.nan, "float32"), strides)
    how = {"stride": problem.stride, "out": Array(out)}
    winolab.conv_backward_data(Array(a), Array(b), problem.x_shape, **how)
    check_bound(p, a, b, out)


@pytest.mark.parametrize(("strides", "first"), [((36, 12, 3, 1), 0), ((36, 12, 3, 1), 1),
                                                ((39, 13, 3, 1), 0)])  # fmt: skip
def test_gradients_whose_rows_begin_anywhere_are_written_by_a_copy(
    library, monkeypatch, strides, first
) -> None:
    """Four taps of three channels are vectors, which kernels store: none had said that of dw."""
    problem = Problem.of((2, 9, 16, 3), (16, 3, 4, 3), stride=(1, 4))
    asked = Request(problem, "backward_filter", H100, None, "fp32_ffma", aligned=False,
                    aligned_rows=True, aligned_outputs=True)  # fmt: skip
    p = next(p for p in merged(asked, False, LONG, candidates) if "dwvec" in vars(p.config))
    assert vars(p.config)["dwvec"] == 2
    monkeypatch.setattr(runtime, "planned", lambda request, apart=False: p)
    a, b = operands(problem, "backward_filter", "fp32")
    dw = lying(np.full(problem.w_shape, np.nan, "float32"), strides, first)
    how = {"stride": (1, 4), "out": Array(dw), "precision": "fp32_ffma"}
    winolab.conv_backward_filter(Array(a), Array(b), problem.w_shape, **how)
    check_bound(p, a, b, dw)
    assert library.reordered() == ["out"] * (strides[0] != 36 or first != 0)


@pytest.mark.parametrize("strides", [(33, 16, 8, 1), (32, 16, 8, 1), (1, 512, 256, 16)])
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_filters_that_tensor_maps_cannot_read_are_copied(
    library, monkeypatch, direction, strides
) -> None:
    problem = Problem.of((2, 8, 16, 8), (16, 2, 2, 8), stride=2)
    p = taken(monkeypatch, problem, direction, "fp16")
    assert p.reads_filters_in_place == p.merged.reads_filters_in_place
    a, b = operands(problem, direction, "fp16")
    w = lying(b, strides, first=1)
    shape = () if direction == "forward" else (problem.x_shape,)
    call = getattr(winolab, f"conv_{direction}")
    check_bound(p, a, b, call(Array(a), Array(w), *shape, stride=2).values)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_rows_begin_anywhere_where_the_filter_is_kept(
    library, monkeypatch, direction, first
) -> None:
    """Four pixels of three channels are vectors, of arrays that begin at one."""
    problem = Problem.of((2, 40, 3), (16, 4, 3), stride=4)
    p = taken(monkeypatch, problem, direction, "fp32_split", apart=True)
    how = {"stride": 4, "precision": "fp32_split"}
    a, b = operands(problem, direction, "fp32")
    kept = winolab.prepare_filter(Array(b), problem.x_shape, direction=direction, **how)
    gaps = 120 + first, 3, 1
    if direction == "forward":
        y = winolab.conv_forward(Array(lying(a, gaps, first)), kept, **how).values
    else:
        y = lying(np.full(problem.x_shape, np.nan, "float32"), gaps, first)
        winolab.conv_backward_data(Array(a), kept, problem.x_shape, out=Array(y), **how)
    check_bound(p, a, b, y)
    library.reordered()
    if direction == "forward":
        winolab.conv_forward(Array(lying(a, (120, 3, 1))), kept, **how)
        assert not library.reordered()


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_filters_channels_first_are_kept(library, monkeypatch, direction, flipped) -> None:
    """Their taps are laid side by side before they are transformed."""
    problem = Problem.of((2, 39, 8), (16, 3, 8), stride=3)
    p = taken(monkeypatch, problem, direction, "fp32_split", apart=True)
    how = {"stride": 3, "precision": "fp32_split", "layout": "channels_first"}
    a, b = operands(problem, direction, "fp32")
    w = np.moveaxis(b, -1, 1).copy()
    w = w[..., ::-1].copy()[..., ::-1] if flipped else w
    shape = (2, 8, 39)
    kept = winolab.prepare_filter(Array(w), shape, direction=direction, **how)
    more = () if direction == "forward" else (shape,)
    call = getattr(winolab, f"conv_{direction}")
    y = call(Array(np.moveaxis(a, -1, 1)), kept, *more, **how)
    check_bound(p, a, b, np.moveaxis(y.values, 1, -1))


def test_an_image_has_the_rows_that_its_batch_has() -> None:
    """Computed alone, it has the bits of others, wherever in a batch it lies."""
    for at_vector in (True, False):
        image = ArrayLayout((1, 39, 3), (117, 3, 1), at_vector)
        assert not image.aligned_rows(4)
