"""Filter gradients in split products check their accuracy; what is lost is computed again."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu.hosted import Guarded, load
from tests.gpu.support.picked import looked_at
from tests.gpu.support.pretended import Array
from winolab import conv_backward_filter
from winolab.algorithm import Problem, Tile, direct, omega, parse_algorithm
from winolab.bench import oracle
from winolab.device import H100, datasheet
from winolab.gpu import driver
from winolab.gpu.families.wgrad_direct.plan import WgradSplitPlan
from winolab.gpu.families.wgrad_winograd.config import CONFIGS
from winolab.gpu.families.wgrad_winograd.launch import most
from winolab.gpu.families.wgrad_winograd.plan import WgradWinogradPlan, plans
from winolab.gpu.families.wgrad_winograd.tiling import SCALING
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import three
from winolab.gpu.planner.fallback import PlanWithFallback, needs_scale
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import loader
from winolab.gpu.runtime.conv import convolve
from winolab.options import ConvOptions
from winolab.ref.algebra.transforms import Matrix, transforms


def _strides(array, kept: int) -> tuple[int, ...]:
    first, *spatial, last = (s // array.itemsize for s in array.strides)
    return (first, *three(tuple(spatial), 0), last)[:kept]


TILE = Tile(3, 6)
SMALL = Problem.of((3, 8, 12, 20), (24, 3, 3, 20), padding=1)


def _omega_on_the_cpu(values, dy) -> tuple[WgradWinogradPlan, Guarded]:
    """The plan of SMALL by TILE, and its workspace behind a call."""
    (plan,) = plans(
        Request(SMALL, "backward_filter", H100, omega(8, 3, 6), "fp32_split", config=CONFIGS[2][5])
    )
    kernels = load(plan.source(), plan.shared())
    x, dy, dw = Guarded.of(values), Guarded.of(dy), Guarded(SMALL.w_shape, "float32")
    workspace = Guarded((plan.workspace,), "uint8")
    a, b, out = (View(g.array.ctypes.data, _strides(g.array, k))
                 for g, k in ((x, 4), (dy, 4), (dw, 5)))  # fmt: skip
    plan.launch(kernels, a, b, out, workspace.array.ctypes.data, 0)
    return plan, workspace


@pytest.mark.parametrize(
    ("small", "lost"), [(1.0, 0), (2.0**-24, 1), (2.0**-60, 1), (0.0, 0), (np.inf, 1), (np.nan, 1)]
)
def test_a_channel_that_split_products_lose_is_noticed_on_the_cpu(small, lost):
    """A channel far below its neighbours, not one of zeros."""
    rng = np.random.default_rng(2)
    dy, x = (rng.standard_normal(s).astype("float32") for s in (SMALL.y_shape, SMALL.x_shape))
    x[..., 3] *= np.float32(small)
    _, workspace = _omega_on_the_cpu(x, dy)
    assert workspace.array[:12].view("int32").tolist() == [lost, 0, 0]


def test_results_near_zero_of_channels_that_lost_nothing_are_no_loss_on_the_cpu():
    """Behind ReLU: channels that are active at one place, and pairs that hardly meet."""
    rng = np.random.default_rng(2)
    dy, x = (rng.standard_normal(s).astype("float32") for s in (SMALL.y_shape, SMALL.x_shape))
    x[..., 3] = 0
    x[1, 4, 6, 3] = 2.0**-9
    x[:, :, 6:, 5] = dy[:, :, :7, 7] = 0  # the taps of this pair meet in two columns
    x[:, :, :6, 5] *= np.float32(2.0**-12)
    _, workspace = _omega_on_the_cpu(x, dy)
    assert workspace.array[:12].view("int32").tolist() == [0, 0, 0]


def _counted(
    t: np.ndarray, plan: WgradWinogradPlan, matrix: Matrix, at: Matrix, other: Matrix
) -> tuple[np.ndarray, np.ndarray]:
    """What transform.cuh and kernel.cuh say that they count, of one side's units [image, row, unit,
    channel, column], in FP64: squares of losses as they reach a tap, and of elements."""
    m, after, beside = (np.array(v, dtype=float) for v in (matrix, at, other))
    reach = (after**2).mean(axis=0) * (beside**2).sum(axis=1)
    images, _, units, channels, _ = t.shape
    assert plan.batch == images
    t = np.moveaxis(t.astype(float), (3, 1, 2, 0), (0, 1, 2, 3))  # [channel, row, unit, image]
    t = t.reshape(channels, t.shape[1], units * images, -1)
    t = np.pad(t, ((0, -channels % 64), (0, 0), (0, plan.pitch - units * images), (0, 0)))
    blocks = t.reshape(
        -1, 64, t.shape[1] * plan.pitch // plan.config.ks, plan.config.ks, t.shape[3]
    )
    largest = np.abs(blocks).max(axis=(1, 3, 4), keepdims=True)
    scale = 2.0 ** (13 - np.floor(np.log2(np.where(largest, largest, 1.0))))
    state = np.abs(np.einsum("abcde,fe->abcdf", blocks * scale, m))
    lost = (((state > 0) & (state < 0.25)) * reach / scale**2).sum(axis=(2, 3, 4))
    return lost.ravel(), (blocks**2).sum(axis=(2, 3, 4)).ravel()


def test_what_channels_may_have_lost_is_counted_as_it_is_said_on_the_cpu():
    rng = np.random.default_rng(7)
    dy, x = (rng.standard_normal(s).astype("float32") for s in (SMALL.y_shape, SMALL.x_shape))
    x[..., ::2] *= np.float32(2.0**-17)
    dy[..., ::3] *= np.float32(2.0**-16)
    plan, workspace = _omega_on_the_cpu(x, dy)
    made = transforms(TILE.n, TILE.r, "best", SCALING)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0))), TILE.inputs, axis=2
    )[:, :, :: TILE.r]
    units = dy.reshape(*dy.shape[:2], -1, TILE.r, dy.shape[3])
    m, n = plan.padded
    of_dy = _counted(np.moveaxis(units, 3, 4), plan, made.G, made.AT, made.BT)
    of_x = _counted(windows, plan, made.BT, made.AT, made.G)
    lost, square = (np.concatenate(both) for both in zip(of_dy, of_x, strict=True))
    most_x, most_dy = most(plan)
    allowed = np.repeat([most_dy, most_x], [m, n]) * square
    at = plan.regions["totals"]
    totals = workspace.array[at : at + 8 * (m + n)].view("float64")
    # Rounded states are within 2^-20 of exact ones, so that hardly any crosses the line; squares
    # are added up in FP32 within a block of 32 positions.
    assert lost[:24:3].all()
    assert lost[m : m + 20 : 2].all()
    assert bool((np.abs(totals - (lost - allowed)) <= 2e-3 * lost + 1e-5 * allowed).all())


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
    named = parse_algorithm(algorithm)
    checked = looked_at(Request(problem, "backward_filter", H100, named, "fp32_split"))
    asked = ConvOptions(
        algorithm=algorithm, precision="fp32_split", on_range="raise", config=checked.config
    )
    dw, again = (
        convolve("backward_filter", problem, Array(x), Array(dy), how).values
        for how in (asked, replace(asked, on_range="fallback"))
    )
    assert np.array_equal(dw, again)
    x[..., 3] *= 2.0**-24
    with pytest.raises(ValueError, match="magnitudes are too far apart"):
        convolve("backward_filter", problem, Array(x), Array(dy), asked)
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


# Factors of x by channel 3, of x and dy; which flags are then set, by direct products and by Ω.
CASES = {
    "plain": (1.0, 1.0, 1.0, [0, 0, 0], [0, 0, 0]),
    "zero channel": (0.0, 1.0, 1.0, [0, 1, 0], [0, 0, 0]),
    "small channel": (2.0**-20, 1.0, 1.0, [1, 0, 0], [1, 0, 0]),
    "vanishing channel": (2.0**-60, 1.0, 1.0, [0, 1, 1], [1, 0, 0]),
    "large": (1.0, 2.0**60, 2.0**50, [0, 0, 0], [0, 0, 0]),
    "small": (1.0, 2.0**-60, 2.0**-50, [0, 0, 0], [0, 0, 0]),
    "scales underflow": (1.0, 2.0**-64, 2.0**-60, [0, 0, 0], [1, 0, 0]),  # of blocks
}


@pytest.mark.gpu
@pytest.mark.parametrize("family", [WgradSplitPlan, WgradWinogradPlan])
@pytest.mark.parametrize("name", CASES)
def test_every_channel_has_the_accuracy_of_fp32(name, family) -> None:
    cp = driver.cupy()
    factor, of_x, of_dy, *both = CASES[name]
    problem = Problem.of((8, 28, 28, 192), (128, 3, 3, 192), padding=1)
    rng = cp.random.default_rng(4)
    x, dy = (rng.random(s, dtype="float32") * 2 - 1 for s in (problem.x_shape, problem.y_shape))
    x[..., 3] *= cp.float32(factor)
    x, dy = x * cp.float32(of_x), dy * cp.float32(of_dy)
    dw, flags, _ = _by(family, problem, x, dy, name)
    assert flags == both[family is WgradWinogradPlan]
    exact = oracle.fp64("backward_filter", problem, x, dy)
    for result in (dw, conv_backward_filter(x, dy, problem.w_shape, padding=1)):
        error = ((result - exact) ** 2).mean(axis=(0, 1, 2)) ** 0.5
        size = (exact**2).mean(axis=(0, 1, 2)) ** 0.5
        # 0.30 u sqrt(K) of FP32 in order, K = 6272, and 1.3 times that of lost parts
        limit = 1.64 * 0.30 * 2.0**-24 * (8 * 28 * 28) ** 0.5
        # what is smaller than the smallest normal number may be 0
        assert bool((error <= limit * size + 2.0**-126).all()), float((error / size).max())


def _by(family: type, problem: Problem, x: Any, dy: Any, name: str) -> tuple[Any, list[int], Any]:
    """dw by a family's first plan on this GPU, the flags that it set, and the plan."""
    cp = driver.cupy()
    choice = candidates(Request(problem, "backward_filter", driver.device(0)))
    every = (p for p in choice.plans if isinstance(p, PlanWithFallback))
    found = next(p for p in every if isinstance(p.primary, family))
    kernels = loader.load(found.source(), name, found.shared(), 0)
    dw = cp.full(problem.w_shape, cp.nan, "float32")
    workspace = cp.full(found.workspace, 0xFF, "uint8")
    a, b, out = (View(g.data.ptr, _strides(g, k)) for g, k in ((x, 4), (dy, 4), (dw, 5)))
    found.launch(kernels, a, b, out, workspace.data.ptr, 0)
    return dw, workspace[:12].view("int32").tolist(), found


@pytest.mark.gpu
@pytest.mark.parametrize("rare", [2.0**-3, 2.0**-9])
def test_channels_that_are_rarely_active_are_left_to_split_products(rare) -> None:
    """As behind ReLU without normalization: x is half zeros, a fourth of its channels is nothing
    but zeros, and an eighth has a few small numbers; dy is as sparse. What these lose stays below
    what FP32 loses of operands whose channels are as large."""
    cp = driver.cupy()
    problem = Problem.of((8, 28, 28, 256), (256, 3, 3, 256), padding=1)
    rng = cp.random.default_rng(8)
    x, dy = (rng.random(s, dtype="float32") * 2 - 1 for s in (problem.x_shape, problem.y_shape))
    x = cp.maximum(x, 0)
    dy = cp.where(rng.random(dy.shape, dtype="float32") < 0.5, dy, 0) * cp.float32(1e-9)
    for t in (x, dy):
        t[..., ::4] = 0
        few = rng.random(t[..., 1::8].shape, dtype="float32") < 1e-3
        t[..., 1::8] *= few * cp.float32(rare)
    dw, flags, plan = _by(WgradWinogradPlan, problem, x, dy, "rare")
    assert flags == [0, 0, 0]
    exact = oracle.fp64("backward_filter", problem, x, dy)
    # In units of the norms of both channels: where many positions meet, 0.30 u of FP32 in order;
    # where few do, what each operand may lose, 1.3 · 0.30 u sqrt(K), and that transforms round.
    made = transforms(plan.primary.tile.n, plan.primary.tile.r, plan.primary.points, SCALING)
    at, g, bt = (np.array(v, dtype=float) ** 2 for v in (made.AT, made.G, made.BT))
    rounded = float(at.mean(axis=0) @ (g.sum(axis=1) * bt.sum(axis=1))) ** 0.5
    limit = (0.30 + 1.3 * 0.30 * 6272**0.5 + rounded) * 2.0**-24
    norms = [cp.sqrt((t.astype("float64") ** 2).sum(axis=(0, 1, 2))) for t in (x, dy)]
    of = norms[1][:, None, None, None] * norms[0]
    assert bool((cp.abs(dw - exact) <= 6 * limit * of).all())  # RMS to the largest of 589,824
