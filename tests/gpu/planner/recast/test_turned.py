"""N × 1 as 1 × N: the bits of the turned problem on turned arrays, results against FP64, filters
kept, and where the planner takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import on_gpu, operands
from tests.gpu.guarded import UNIT, limits
from tests.gpu.planner.recast.bounds import check_bound
from tests.gpu.planner.recast.choices import LONG
from tests.gpu.planner.recast.lying import lying
from tests.gpu.support.pretended import Array
from winolab.algorithm import Direct, Problem
from winolab.device import H100, datasheet
from winolab.gpu.planner.planner import Choice, candidates, plan
from winolab.gpu.planner.recast.folded import folded
from winolab.gpu.planner.recast.turned import TurnedPlan, turned, turned_problem
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import planned as runtime
from winolab.gpu.runtime.cache import plans as kept
from winolab.problem import shapes
from winolab.ref.algorithms import convolution

PROBLEMS = {
    "7 × 1": Problem.of((2, 13, 9, 16), (16, 7, 1, 16), padding=(3, 0)),
    "causal": Problem.of((2, 11, 8, 24), (16, 3, 1, 24), padding=((2, 0), (1, 0))),
    "groups": Problem.of((2, 12, 7, 16), (32, 5, 1, 8), padding=(1, 0), groups=2),
    "depth": Problem.of((1, 9, 5, 6, 16), (16, 3, 1, 1, 16), padding=(1, 0, 1)),
    "depth, height": Problem.of((1, 5, 9, 6, 8), (8, 2, 3, 1, 8), padding=(1, 1, 0)),
}
CASES = [
    *((name, "fp32", "", way) for name in PROBLEMS for way in ("forward", "backward_filter")),
    ("7 × 1", "fp32", "", "backward_data"), ("7 × 1", "fp32_split", "Γ", "forward"),
    ("depth", "fp32_split", "Γ", "backward_data"),
    ("causal", "fp32_split", "Ω", "backward_filter"), ("causal", "fp16", "Γ", "forward"),
    ("7 × 1", "bf16", "Ω", "backward_filter"),
]  # fmt: skip


def planned(
    problem: Problem, direction: str, precision: str, kernel: str = "", device: str = "h100"
) -> TurnedPlan:
    """The fastest plan that transforms, by a kernel of such a name."""

    def chosen(request: Request, near: bool) -> Choice:
        every = candidates(request)
        return replace(every, plans=tuple(p for p in every.plans if p.kernel.startswith(kernel)
                                          and any(t.alpha > 1 for t in p.tiles)))  # fmt: skip

    asked = Request(problem, direction, datasheet(device), None, precision)
    return next(turned(asked, False, LONG, chosen))


def exchanged(v: np.ndarray, along: int) -> np.ndarray:
    """The array in whose memory the width has the place of the dimension ``along``, behind which,
    and the width, are channels."""
    return np.ascontiguousarray(np.swapaxes(v, along - 1, -2))


def check(name: str, precision: str, kernel: str, direction: str, execute: Callable) -> None:
    p = planned(PROBLEMS[name], direction, precision, kernel)
    a, b = operands(p.problem, direction, precision)
    y = execute(p, a, b)
    check_bound(p, a, b, y)
    straight = execute(p.turned, exchanged(a, p.along), exchanged(b, p.along))
    assert np.array_equal(exchanged(y, p.along), straight)


@pytest.mark.parametrize(("name", "precision", "kernel", "direction"), CASES)
def test_results_have_the_bits_of_the_turned_problem(name, precision, kernel, direction) -> None:
    check(name, precision, kernel, direction,
          lambda p, a, b: hosted.execute(p, a, b, dtype=p.out_dtype))  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "precision", "kernel", "direction"), CASES)
def test_results_on_a_gpu_have_the_bits_of_the_turned_problem(
    name, precision, kernel, direction
) -> None:
    check(name, precision, kernel, direction, on_gpu)


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_a_filter_is_kept(direction: str) -> None:
    """A call has the bits of a call with the filter transformed beforehand."""
    p = planned(PROBLEMS["7 × 1"], direction, "fp32_split", "Γ")
    a, b = operands(p.problem, direction, "fp32")
    y = hosted.execute(p, a, b)
    assert (hosted.execute(p, a, b, apart=True) == y).all()


@pytest.mark.parametrize("device", ["h200", "a100", "rtx4090"])
@pytest.mark.parametrize("precision", ["fp32", "fp32_ffma", "fp16"])
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_it_costs_what_1_by_n_does(device: str, precision: str, direction: str) -> None:
    """Within what plans have to be WORTH: issue 45. One image's gradient had taken 2.3 times as
    long on an H200, forward on an A100 7."""
    for batch, size, channels, taps in ((1, 17, 160, 7), (32, 35, 64, 5), (32, 56, 64, 9)):
        tall = Problem.of((batch, size, size, channels), (channels, taps, 1, channels),
                          padding=(taps // 2, 0))  # fmt: skip
        request = Request(tall, direction, datasheet(device), None, precision)
        wide = replace(request, problem=turned_problem(tall, -2))
        assert 0.9 * plan(request).predicted <= plan(wide).predicted


def test_the_planner_takes_it_where_nobody_says_how() -> None:
    tall = Problem.of((32, 17, 17, 160), (160, 7, 1, 160), padding=(3, 0))
    request = Request(tall, "backward_filter", H100)
    found = plan(request)
    assert isinstance(found, TurnedPlan)
    assert found.kernel.endswith(" along the height")
    assert "the width and the height in each other's place:" in str(found)
    assert kept._unpacked(kept.packed(found)) == found
    deep = Problem.of((32, 17, 9, 17, 160), (160, 7, 1, 1, 160), padding=(3, 0, 0))
    along_depth = plan(replace(request, problem=deep))
    assert along_depth.kernel.endswith(" along the depth")
    huge = replace(tall, in_channels=1 << 24, input=(17, 1 << 9))
    for other in (
        replace(request, algorithm=Direct()),
        replace(request, problem=turned_problem(tall, -2)),
        replace(request, problem=replace(tall, stride=(2, 1))),
        replace(request, problem=replace(tall, filter=(1, 1), padding=((0, 0), (0, 0)))),
    ):
        assert not isinstance(plan(other), TurnedPlan)
    for none in (replace(request, problem=huge), replace(request, config=found.config)):
        assert not list(turned(none, True, LONG, candidates))
    waiting = replace(request, in_phases=False, precision="fp32_split")
    assert not any(p.flags for p in turned(waiting, False, LONG, candidates))


@pytest.mark.parametrize("precision", ["fp32_ffma", "fp32_split", "fp16"])
def test_whole_calls_are_those_of_the_reference(library, precision, monkeypatch) -> None:
    """Bias and activation, in the kernels or behind them; channels first; the tolerance's way."""
    problem = PROBLEMS["7 × 1"]
    p = planned(problem, "forward", precision, "Γ")
    monkeypatch.setattr(runtime, "planned", lambda request, apart=False: p)
    x, w = operands(problem, "forward", precision)
    how = {"padding": (3, 0), "precision": precision}
    y = hosted.execute(p, x, w, dtype=p.out_dtype)
    assert (winolab.conv_forward(Array(x), Array(w), **how).values == y).all()
    first = [Array(np.ascontiguousarray(np.moveaxis(v, -1, 1))) for v in (x, w)]
    got = winolab.conv_forward(*first, layout="channels_first", **how).values
    assert (np.moveaxis(got, 1, -1) == y).all()
    bias = np.linspace(-1, 1, problem.out_channels, dtype=x.dtype)
    residual = np.linspace(-1, 1, y.size, dtype=x.dtype).reshape(y.shape)
    more = {"bias": Array(bias), "residual": Array(residual), "activation": "relu"}
    got = winolab.conv_forward(Array(x), Array(w), **how, **more).values
    wide = convolution.forward(x.astype(float), w.astype(float), problem)
    exact = np.maximum(wide + bias + residual, 0)
    proven, _, _ = limits(p.turned.primary)
    off, most = np.abs(got - exact), np.abs(exact) + proven + 2
    assert (off <= proven + (2 * UNIT[p.out_dtype] + 2.0**-22) * most).all()


@pytest.mark.parametrize("far", [1 << 30, 1 << 33])
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_rows_far_from_each_other_are_copied(library, monkeypatch, direction, far) -> None:
    """Kernels take several pixels at once by a step of 32 bits, which rows had not been held to."""
    problem = Problem.of((2, 1, 6, 16), (16, 7, 1, 16), padding=(3, 0))
    p = planned(problem, direction, "fp32")
    monkeypatch.setattr(runtime, "planned", lambda request, apart=False: p)
    a, b = operands(problem, direction, "fp32")
    y = hosted.execute(p, a, b)

    def distant(v: np.ndarray) -> Array:
        strides = (v.strides[0], v.itemsize * far, *v.strides[2:])
        return Array(np.lib.stride_tricks.as_strided(v, v.shape, strides))

    gradient = direction == "backward_filter"
    shape = shapes(direction, problem)[2]
    out = np.full_like(y, np.nan)
    more = {"out": Array(out) if gradient else distant(out), "padding": (3, 0)}
    if gradient:
        winolab.conv_backward_filter(distant(a), distant(b), shape, **more)
    elif direction == "backward_data":
        winolab.conv_backward_data(distant(a), Array(b), shape, **more)
    else:
        filters = Array(b), winolab.prepare_filter(Array(b), a.shape, padding=(3, 0))
        for w in filters:
            out[...] = np.nan
            winolab.conv_forward(distant(a), w, **more)
            assert np.array_equal(out, y)
    assert np.array_equal(out, y)


def test_rows_that_begin_at_vectors_are_columns_then(library, monkeypatch) -> None:
    """Pixels of x lie at no vectors, its rows would in a copy: products of every tap of the turned
    problem had been planned for the copy, and read x as it lies."""
    problem = Problem.of((2, 9, 8, 16), (2, 3, 1, 16), padding=(1, 0))

    def chosen(request: Request, near: bool) -> Choice:
        every = candidates(request)
        return replace(every, plans=tuple(folded(request, near, LONG, candidates)))

    taken = []

    def planned(request: Request, apart: bool = False) -> TurnedPlan:
        assert request.aligned_rows
        assert not request.aligned
        taken.extend(turned(request, False, LONG, chosen))
        return taken[0]

    monkeypatch.setattr(runtime, "planned", planned)
    a, b = operands(problem, "forward", "fp16")
    x = lying(a, (9 * 8 * 17, 8 * 17, 17, 1))
    y = winolab.conv_forward(Array(x), Array(b), padding=(1, 0))
    check_bound(taken[0], a, b, y.values)
