from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.algorithm import Problem, gamma, parse_algorithm, winograd
from winolab.bench.layers import parse_layer
from winolab.device import H100, datasheet
from winolab.gpu.families.direct import plan as direct
from winolab.gpu.families.gamma_wgmma.config import Config
from winolab.gpu.families.nested import config as nested
from winolab.gpu.planner.correlation import Correlation, scaling
from winolab.gpu.planner.fallback import PlanWithFallback
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.ranking import AS_EXACT, CLOSE
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution
from winolab.ref.error.metrics import error_ratio


def correlate(c: Correlation, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """What the kernels compute for one group, in integers: x (N, D, H, W, C), w (M, d, h, w, C)."""
    y = np.zeros((c.batch, *c.output, c.out_channels), dtype=x.dtype)
    for tap in np.ndindex(*c.filter):
        for at in np.ndindex(*c.output):
            place = [o + t - p for o, t, p in zip(at, tap, c.padding, strict=True)]
            if all(0 <= i < size for i, size in zip(place, c.input, strict=True)):
                y[(slice(None), *at)] += x[(slice(None), *place)] @ w[(slice(None), *tap)].T
    return y


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=3),
    st.integers(0, 3),
    st.integers(0, 2**32 - 1),
)
def test_both_directions_are_the_correlation_that_runs(sizes, padding, seed) -> None:
    rng = np.random.default_rng(seed)
    filter_ = tuple(r for _, r in sizes)
    problem = Problem.of((2, *(n + r - 1 for n, r in sizes), 3), (2, *filter_, 3), padding=padding)
    w = rng.integers(-4, 5, problem.w_shape)
    ones = (1,) * (3 - len(sizes))
    for direction, shape, oracle in (
        ("forward", problem.x_shape, convolution.forward),
        ("backward_data", problem.y_shape, convolution.backward_data),
    ):
        x = rng.integers(-4, 5, shape)
        c = Correlation.of(problem, direction)
        taps = w.reshape(w.shape[0], *ones, *filter_, w.shape[-1])
        if c.rotated:
            taps = np.flip(taps, (1, 2, 3)).swapaxes(0, 4)
        got = correlate(c, x.reshape(2, *ones, *shape[1:]), taps)
        expected = oracle(x.astype(float), w.astype(float), problem)
        assert np.array_equal(got.reshape(expected.shape), expected)


def test_the_planner_takes_the_papers_kernels() -> None:
    for hw, channels, r, kernel in (
        (48, 128, 3, "Γ8(6,3)"),
        (64, 128, 5, "Γ8(4,5)"),
        (64, 128, 9, "Γ8(6,3)"),  # in three pieces: Γ16(8,9) loses too much unasked
        (64, 128, 1, "Γ1(1,1) cuBLASLt"),  # one product of matrices, whose times are alike
    ):
        problem = Problem.of((64, hw, hw, channels), (channels, r, r, channels), padding=r // 2)
        picked = plan(Request(problem, "forward", H100, precision="fp32_ffma"))
        assert picked.kernel in kernel.split()


def test_fp32_is_what_the_faster_unit_delivers() -> None:
    """Split products with FFMA behind them, but where launches cost more than they save."""
    large, small = (
        Problem.of((batch, hw, hw, c), (c, 3, 3, c), padding=1)
        for batch, hw, c in ((64, 48, 128), (1, 7, 12))
    )
    for direction in ("forward", "backward_data"):
        chosen = plan(Request(large, direction, H100))
        assert isinstance(chosen, PlanWithFallback)
        assert chosen.precision == "fp32_split"
        assert chosen.fallback.precision == "fp32"
        ffma = plan(Request(large, direction, H100, precision="fp32_ffma"))
        assert chosen.predicted < ffma.predicted
        assert plan(Request(small, direction, H100)).precision == "fp32"
        named = plan(Request(small, direction, H100, precision="fp32_split"))
        assert named.precision == "fp32_split"


@pytest.mark.parametrize(
    ("arguments", "algorithm", "message"),
    [
        ({"stride": 2}, gamma(8, 6, 3), "stride 1 and dilation 1"),
        ({"dilation": 2}, gamma(8, 6, 3), "stride 1 and dilation 1"),
        ({}, gamma(8, 4, 5), "5 taps; the filter is 3 wide"),
        ({}, gamma(12, 10, 3), "have alpha 1, 4, 6, 8, 16"),
        ({}, winograd((4, 4), (5, 5)), "no CUDA kernel has .* for 3 taps"),
        ({}, winograd((4,), (3,)), "two dimensions"),
    ],
)
def test_what_the_kernels_cannot_run_is_refused(arguments, algorithm, message) -> None:
    problem = Problem.of((2, 9, 9, 8), (8, 3, 3, 8), **arguments)
    with pytest.raises(ValueError, match=message):
        plan(Request(problem, "forward", H100, algorithm))


def test_of_plans_as_fast_as_each_other_the_most_accurate_is_taken() -> None:
    problem = parse_layer("128x75x75x96:96x2x2").problem
    request = Request(problem, "forward", H100, precision="fp32_split")
    found: tuple[Any, ...] = candidates(request).plans
    fastest = min(p.predicted for p in found)
    close = [p for p in found if p.predicted <= CLOSE * fastest]
    states = [math.prod(t.alpha for t in p.algorithm.tiles) for p in close]
    assert math.prod(t.alpha for t in found[0].algorithm.tiles) == min(states) < max(states)
    others = [p.predicted for p in found[1:] if len(p.algorithm.tiles) == 1]
    assert others == sorted(others)
    gradients = candidates(Request(problem, "backward_filter", H100)).plans
    assert gradients[0].predicted == min(p.predicted for p in gradients)


@pytest.mark.parametrize(
    ("layer", "kernel", "fold"),
    [
        ("128x96x96x64:64x3x3", "Γ6(4,3)", 0),  # of half of Γ8's error
        ("64x128x128x64:64x5x5", "Γ8(4,5)", 3),  # the same, whose sums leave the Tensor Core sooner
        ("128x48x48x128:128x3x3", "Γ8(6,3)", 0),  # errs less than FP32's sums as it is
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "fp32_split"])
def test_split_products_err_no_more_than_sums_in_fp32(layer, kernel, fold, precision) -> None:
    """Where a plan has that for AS_EXACT times the time; the reference predicts both errors."""
    problem = parse_layer(layer).problem
    found = candidates(Request(problem, "forward", H100, precision=precision)).plans
    config = found[0].config
    assert isinstance(config, Config)
    assert (found[0].kernel, config.fold) == (kernel, fold)
    fastest = min(found, key=lambda p: p.predicted)
    assert found[0].predicted <= AS_EXACT * fastest.predicted

    def loss(plan) -> float:
        (tile,), products = plan.tiles, problem.in_channels * problem.filter[0]
        return error_ratio(tile, plan.points, plan.simulated, products, scaling(plan.simulated))

    assert loss(found[0]) <= 1
    if found[0] is not fastest:
        assert loss(fastest) > 1
    named = candidates(Request(problem, "forward", H100, parse_algorithm("direct"))).plans
    assert named[0].predicted == min(p.predicted for p in named)


@pytest.mark.parametrize(
    ("device", "text"), [("a100", "gamma:6:4:3"), ("h100", "gamma:6:4:3;variant=two_level:32")]
)
def test_blocks_that_a_device_does_not_hold_are_refused(device, text) -> None:
    """Six states take twelve warps: all of 8.x's memory, and no second sum."""
    problem = Problem.of((2, 9, 9, 8), (8, 3, 3, 8), padding=1)
    request = Request(problem, "forward", datasheet(device), parse_algorithm(text), "fp32_ffma")
    with pytest.raises(ValueError, match=r"no block of gamma:6:4:3.* or its registers"):
        plan(request)


def test_a_refused_precision_names_the_one_that_has_kernels() -> None:
    problem = Problem.of((1, 8, 8, 4), (4, 1, 1, 4))
    with pytest.raises(ValueError, match=r"3 × 3 taps; precision 'fp16' has other kernels$"):
        plan(Request(problem, "forward", H100, None, "fp16_ffma"))


TURING = replace(H100, name="RTX 2080 Ti", compute_capability=(7, 5))
X, W = (2, 9, 9, 8), (8, 3, 3, 8)
REFUSED = {
    "RTX 2080 Ti has compute capability 7.5; the CUDA kernels need 8.0 or later; NumPy arrays run "
    "on the reference": (Problem.of(X, W), TURING),
    "4 spatial dimensions; the CUDA kernels have up to 3; NumPy arrays run on the reference, which "
    "has any number": (Problem.of((1, 4, 4, 4, 4, 8), (8, 3, 3, 3, 3, 8)), H100),
    "an array's size is 2147483648, and the CUDA kernels count to 2147483647: split the arrays, "
    "along batch, channels or outputs": (Problem.of((1 << 31, 9, 9, 8), W), H100),
    "the stride is 2147483648, and the CUDA kernels count to 2147483647: NumPy arrays run on the "
    "reference, which has any": (Problem.of(X, W, stride=1 << 31), H100),
}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
@pytest.mark.parametrize("text", REFUSED)
def test_what_no_kernel_computes_is_one_sentence(text, direction, precision) -> None:
    """Issue 45: not a sentence a family."""
    problem, device = REFUSED[text]
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        plan(Request(problem, direction, device, None, precision))


def test_strides_that_nobody_tiles_are_not_explained_by_transforms() -> None:
    """A stride of a million has as many phases of dx; no algorithm was named."""
    problem = Problem.of((1, 4, 4, 8), W, padding=1, stride=1 << 20)
    with pytest.raises(ValueError, match="the number of blocks of direct products") as found:
        plan(Request(problem, "backward_data", H100))
    assert "transform" not in str(found.value)


def test_plans_are_values() -> None:
    problem = Problem.of((2, 9, 9, 8), (8, 3, 3, 8))
    request = Request(problem, "forward", H100)
    assert plan(request) is plan(replace(request))
    one, other = (candidates(request).plans for _ in range(2))
    assert one == other


def test_a_family_refuses_the_config_of_another() -> None:
    problem = Problem.of((2, 8, 8, 64), (64, 3, 3, 64), padding=1)
    foreign = Request(problem, "forward", H100, None, "fp16", config=nested.Config(96, 96, 2))
    expected = "config is Config.* these kernels take a winolab.gpu.families.direct.config.Config"
    with pytest.raises(TypeError, match=expected):
        next(direct.plans(foreign))
