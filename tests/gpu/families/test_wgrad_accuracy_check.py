"""Filter gradients in split products check their accuracy; what is lost is computed again."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu.hosted import Guarded, load
from tests.gpu.support.pretended import Array
from winolab import conv_backward_filter
from winolab.algorithm import Problem, direct, omega
from winolab.bench import oracle
from winolab.device import H100, datasheet
from winolab.gpu import driver
from winolab.gpu.families.wgrad_direct.plan import WgradSplitPlan
from winolab.gpu.families.wgrad_winograd.config import CONFIGS
from winolab.gpu.families.wgrad_winograd.plan import plans
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import three
from winolab.gpu.planner.fallback import PlanWithFallback, needs_scale
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import loader


def _strides(array, kept: int) -> tuple[int, ...]:
    first, *spatial, last = (s // array.itemsize for s in array.strides)
    return (first, *three(tuple(spatial), 0), last)[:kept]


def test_a_channel_that_split_products_lose_is_noticed_on_the_cpu():
    """Flags of fallback.cuh: lost accuracy, results of 0, numbers that vanish."""
    problem = Problem.of((3, 8, 12, 20), (24, 3, 3, 20), padding=1)
    (plan,) = plans(
        Request(
            problem, "backward_filter", H100, omega(8, 3, 6), "fp32_split", config=CONFIGS[2][5]
        )
    )
    kernels = load(plan.source(), plan.shared())
    rng = np.random.default_rng(2)
    dy = Guarded.of(rng.standard_normal(problem.y_shape).astype("float32"))
    found = {}
    for small in (1.0, 2.0**-24, 2.0**-60, 0.0):
        values = rng.standard_normal(problem.x_shape).astype("float32")
        values[..., 3] *= small
        x, dw = Guarded.of(values), Guarded(problem.w_shape, "float32")
        workspace = Guarded((plan.workspace,), "uint8")
        a, b, out = (View(g.array.ctypes.data, _strides(g.array, k))
                     for g, k in ((x, 4), (dy, 4), (dw, 5)))  # fmt: skip
        plan.launch(kernels, a, b, out, workspace.array.ctypes.data, 0)
        found[small] = workspace.array[:12].view("int32").tolist()
    assert found == {1.0: [0, 0, 0], 2.0**-24: [1, 0, 0], 2.0**-60: [0, 1, 1], 0.0: [0, 1, 0]}


def test_precision_fp32_takes_split_products_with_a_fallback():
    problem = Problem.of((32, 56, 56, 256), (256, 3, 3, 256), padding=1)
    chosen = plan(Request(problem, "backward_filter", H100))
    assert isinstance(chosen, PlanWithFallback)
    assert chosen.primary.checks_accuracy
    assert chosen.fallback.precision == "fp32"
    named = candidates(Request(problem, "backward_filter", H100, direct(), "fp32")).plans
    assert {type(p.primary) for p in named if isinstance(p, PlanWithFallback)} == {WgradSplitPlan}


@pytest.mark.parametrize("gpu", ["h100", "a100"])
@pytest.mark.parametrize("channels", [37, 64])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_split_products_that_check_nothing_have_to_be_asked_for(gpu, channels, width) -> None:
    """By their config: precision fp32_split and a name lose nothing unseen."""
    problem = Problem.of((2, 9, 20, channels), (channels, 3, width, channels), padding=1)
    for named in (None, direct()):
        request = Request(problem, "backward_filter", datasheet(gpu), named, "fp32_split")
        choice = candidates(request)
        assert choice.plans or choice.reasons
        assert all(isinstance(p, PlanWithFallback) or not needs_scale(p) for p in choice.plans)
        shown = candidates(replace(request, algorithm=direct(), config=CONFIGS[2][5])).plans
        assert [p.checks_accuracy for p in shown] == [False]


@pytest.mark.parametrize(
    ("algorithm", "groups"), [("omega:8:3:6", 1), ("omega:8:3:6", 2), ("direct", 1)]
)
def test_flags_that_no_kernel_cleared_are_not_read(library, monkeypatch, algorithm, groups) -> None:
    """on_range="raise" in memory as it came: NaN, whose bits are a flag."""
    read = []

    def integers(address: int, count: int, stream: int) -> list[int]:
        read.append(list((ctypes.c_int32 * count).from_address(address)))
        return read[-1]

    monkeypatch.setattr(driver, "integers", integers)
    problem = Problem.of((4, 8, 12, 32 * groups), (32 * groups, 3, 3, 32), padding=1, groups=groups)
    rng = np.random.default_rng(5)
    x, dy = (rng.standard_normal(s).astype("float32") for s in (problem.x_shape, problem.y_shape))
    asked: dict[str, Any] = {
        "padding": 1,
        "groups": groups,
        "algorithm": algorithm,
        "precision": "fp32_split",
        "on_range": "raise",
    }
    dw, again = (
        conv_backward_filter(Array(x), Array(dy), problem.w_shape, **how).values
        for how in (asked, dict(asked, on_range="fallback"))
    )
    assert np.array_equal(dw, again)
    x[..., 3] *= 2.0**-24
    with pytest.raises(ValueError, match="magnitudes are too far apart"):
        conv_backward_filter(Array(x), Array(dy), problem.w_shape, **asked)
    assert read == [[0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("on_range", ["fallback", "raise"])
@pytest.mark.parametrize("algorithm", [None, "omega:8:3:6", "direct"])
def test_a_wide_result_is_converted_when_it_is_there(
    library, monkeypatch, algorithm, on_range
) -> None:
    """dw in bfloat16 of float32 arrays: split products and their fallback write float32."""
    monkeypatch.setattr(driver, "integers", lambda *_: [0, 0, 0])
    problem = Problem.of((2, 8, 12, 64), (64, 3, 3, 64), padding=1)
    rng = np.random.default_rng(5)
    x, dy = (rng.standard_normal(s).astype("float32") for s in (problem.x_shape, problem.y_shape))
    asked: dict[str, Any] = {"padding": 1, "algorithm": algorithm, "on_range": on_range}
    asked["precision"] = "fp32_split"
    arrays = Array(x), Array(dy), problem.w_shape
    wide = conv_backward_filter(*arrays, **asked).values
    given = Array(np.full(problem.w_shape, np.nan, "bfloat16"))
    for dw in (
        conv_backward_filter(*arrays, **asked, out_dtype="bfloat16"),
        conv_backward_filter(*arrays, **asked, out=given),
    ):
        assert dw.values.dtype == "bfloat16"
        assert np.array_equal(dw.values, wide.astype("bfloat16"))


CASES = {  # factors of x by channel 3, of x and dy; which flags are then set
    "plain": (1.0, 1.0, 1.0, [0, 0, 0]),
    "zero channel": (0.0, 1.0, 1.0, [0, 1, 0]),
    "small channel": (2.0**-20, 1.0, 1.0, [1, 0, 0]),
    "vanishing channel": (2.0**-60, 1.0, 1.0, [0, 1, 1]),
    "large": (1.0, 2.0**60, 2.0**50, [0, 0, 0]),
    "small": (1.0, 2.0**-60, 2.0**-50, [0, 0, 0]),
    "scales underflow": (1.0, 2.0**-64, 2.0**-60, [0, 1, 1]),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_every_channel_has_the_accuracy_of_fp32(name) -> None:
    cp = driver.cupy()
    factor, of_x, of_dy, flags = CASES[name]
    problem = Problem.of((8, 28, 28, 192), (128, 3, 3, 192), padding=1)
    rng = cp.random.default_rng(4)
    x, dy = (rng.random(s, dtype="float32") * 2 - 1 for s in (problem.x_shape, problem.y_shape))
    x[..., 3] *= cp.float32(factor)
    x, dy = x * cp.float32(of_x), dy * cp.float32(of_dy)
    choice = candidates(Request(problem, "backward_filter", driver.device(0)))
    found = next(p for p in choice.plans if isinstance(p, PlanWithFallback))
    kernels = loader.load(found.source(), name, found.shared(), 0)
    dw = cp.full(problem.w_shape, cp.nan, "float32")
    workspace = cp.full(found.workspace, 0xFF, "uint8")
    a, b, out = (View(g.data.ptr, _strides(g, k)) for g, k in ((x, 4), (dy, 4), (dw, 5)))
    found.launch(kernels, a, b, out, workspace.data.ptr, 0)
    assert workspace[:12].view("int32").tolist() == flags
    exact = oracle.fp64("backward_filter", problem, x, dy)
    for result in (dw, conv_backward_filter(x, dy, problem.w_shape, padding=1)):
        error = ((result - exact) ** 2).mean(axis=(0, 1, 2)) ** 0.5
        size = (exact**2).mean(axis=(0, 1, 2)) ** 0.5
        # 0.30 u sqrt(K) of FP32 in order, K = 6272, and 1.3 times that of lost parts
        limit = 1.64 * 0.30 * 2.0**-24 * (8 * 28 * 28) ** 0.5
        # what is smaller than the smallest normal number may be 0
        assert bool((error <= limit * size + 2.0**-126).all()), float((error / size).max())
