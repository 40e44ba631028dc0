"""Split products check their own accuracy; what they cannot serve is computed again on FFMA."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.support.adversaries import BY_IMAGE, DATA, made
from tests.gpu.support.turns import turns
from winolab import conv_backward_data, conv_backward_filter, conv_forward, prepare_filter
from winolab.algorithm import Problem, direct, parse_algorithm
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.families.gamma_ffma import plan as gamma_ffma
from winolab.gpu.families.gamma_wgmma import plan as gamma_wgmma
from winolab.gpu.families.nested import plan as nested
from winolab.gpu.families.wgrad_ffma import plan as wgrad_ffma
from winolab.gpu.families.wgrad_winograd import plan as wgrad_winograd
from winolab.gpu.params import View
from winolab.gpu.planner.fallback import CorrelationWithFallback, PlanWithFallback, verify
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime.call import kernels_of
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.simulated import arithmetic

PROBLEM = Problem.of((2, 4, 9, 64), (64, 3, 3, 64), padding=1)
FEWER = replace(PROBLEM, in_channels=36)  # for results on the CPU: two stages


FLOOR = 10 * 2**-24  # relative RMS: what products of 22 bits have


@cache
def _with_fallback(problem: Problem, direction: str, text: str | None = None) -> PlanWithFallback:
    modules = (
        (wgrad_winograd, wgrad_ffma)
        if direction == "backward_filter"
        else (gamma_wgmma, gamma_ffma)
    )
    named = parse_algorithm(text) if text else None
    if text:
        modules = nested, gamma_ffma
    split, ffma = (
        min(
            module.plans(
                Request(problem, direction, H100, named if module is nested else None, precision)
            ),
            key=lambda plan: (not plan.checks_accuracy, plan.predicted),
        )
        for module, precision in zip(modules, ("fp32_split", "fp32"), strict=True)
    )
    return PlanWithFallback.of(split, ffma)


def _chosen(request: Request) -> PlanWithFallback:
    """The fastest that has a fallback: what is picked may need none."""
    return next(p for p in candidates(request).plans if isinstance(p, PlanWithFallback))


@cache
def _loaded(plan: Any) -> dict[str, Any]:
    return hosted.loaded(plan)


@cache
def _again(name: str, problem: Problem, direction: str) -> tuple[np.ndarray, ...]:
    """Data, and what the fallback alone and sums in order make of them; nobody writes to them."""
    plan = _with_fallback(problem, direction).fallback
    shapes = {"forward": (problem.x_shape, problem.w_shape),
              "backward_data": (problem.y_shape, problem.w_shape),
              "backward_filter": (problem.x_shape, problem.y_shape)}[direction]  # fmt: skip
    a, b = made(name, *shapes)
    again = hosted.execute(plan, a, b, kernels=_loaded(plan))
    in_order = getattr(winograd, direction)(a, b, problem, direct(), arithmetic("fp32"))
    for array in (a, b, again, in_order):
        array.flags.writeable = False
    return a, b, again, in_order


def _view(array: Any, kept: int) -> View:
    return View(array.data.ptr, hosted._strides(array, kept))


def _errors(got: np.ndarray, exact: np.ndarray | int, axis: int) -> np.ndarray:
    """Root mean squares along all other axes."""
    other = tuple(i for i in range(got.ndim) if i != axis)
    return np.sqrt(np.mean((got - exact) ** 2, axis=other))


def _steps(x: np.ndarray, dy: np.ndarray) -> float:
    """Root mean square of what sums of products of low parts lose, which have steps of 2⁻¹³⁶ where
    numbers are small: of as many errors as there are positions, each times the other operand."""
    sizes = (np.where(np.isfinite(v), v, 0).astype(float) for v in (x, dy))
    return 2.0**-136 * math.sqrt(dy[..., 0].size) * sum(np.sqrt(np.mean(v**2)) for v in sizes)


def _depends(x: np.ndarray, dy: np.ndarray, problem: Problem) -> np.ndarray:
    """Which taps of a filter gradient meet something that is not finite."""
    of_x, of_dy = ((~np.isfinite(v)).astype(float) for v in (x, dy))
    met = convolution.backward_filter(of_x, np.ones_like(of_dy), problem)
    return met + convolution.backward_filter(np.ones_like(of_x), of_dy, problem) > 0


NESTED = "winograd:4x4:3x3"


@pytest.mark.parametrize(
    ("name", "direction", "text"),
    [(name, "forward", text) for name, text in turns(DATA, (None, NESTED))]
    + [
        (name, "backward_data", text)
        for name in ("wide exponents", "NaN", "a tiny output channel")
        for text in (None, NESTED)
    ],
)
def test_no_accuracy_is_lost(name: str, direction: str, text: str | None) -> None:
    """FFMA's very bits where data are too wide; else, of every image and of every channel, at
    most twice the error of direct summation, which is next to none of a single large product."""
    plan = _with_fallback(FEWER, direction, text)
    assert plan.fallback == _with_fallback(FEWER, direction).fallback
    a, b, again, in_order = _again(name, FEWER, direction)
    got = hosted.execute(plan, a, b, kernels=_loaded(plan))
    if DATA[name][1] and name not in BY_IMAGE:
        np.testing.assert_array_equal(got, again)
        return
    assert not np.array_equal(got, again) or not got.any()
    exact = getattr(convolution, direction)(a, b, FEWER)
    for axis in (0, -1):
        own, of_order = (_errors(v, exact, axis) for v in (got, in_order))
        assert (own <= np.maximum(2 * of_order, FLOOR * _errors(exact, 0, axis))).all()


@pytest.mark.parametrize("name", ["normal", "NaN"])
@pytest.mark.parametrize("text", [None, NESTED])
def test_filters_transformed_before_give_the_same_bits(name: str, text: str | None) -> None:
    plan = _with_fallback(PROBLEM, "forward", text)
    assert isinstance(plan, CorrelationWithFallback)
    a, b = made(name, PROBLEM.x_shape, PROBLEM.w_shape)
    kernels = hosted.loaded(plan)
    prepared, beside = (
        hosted.Guarded((size,), "uint8") for size in (plan.prepared_size, plan.beside)
    )
    out = hosted.Guarded(PROBLEM.y_shape, "float32")
    arrays = [hosted.Guarded.of(v) for v in (a, b)] + [out]
    x, w, y = (
        View(g.array.ctypes.data, hosted._strides(g.array, kept))
        for g, kept in zip(arrays, (4, 5, 4), strict=True)
    )
    plan.prepare(kernels, w, prepared.array.ctypes.data, 0)
    plan.run(kernels, x, prepared.array.ctypes.data, y, beside.array.ctypes.data, 0)
    for guarded in (prepared, beside, *arrays):
        guarded.check("what is around")
    np.testing.assert_array_equal(out.array, hosted.execute(plan, a, b, kernels=kernels))


@pytest.mark.parametrize("text", ["gamma:8:6:3", "gamma:8:2:7", "gamma:4:2:3"])
def test_thresholds_lie_where_errors_begin_to_grow(text: str) -> None:
    """An image ever smaller than the other, but for a channel that no output reads: as long as no
    flag is set, its error stays."""
    algorithm = parse_algorithm(text)
    r = algorithm.tiles[0].r
    problem = Problem.of((2, 2, 9, 64), (16, 1, r, 64), padding=(0, r // 2))
    plan = min(
        gamma_wgmma.plans(Request(problem, "forward", H100, algorithm, "fp32_split")),
        key=lambda plan: plan.predicted,
    )
    kernels = hosted.loaded(plan)
    whole, flagged = None, []
    for binades in range(0, 21, 4):
        a, b = made("normal", problem.x_shape, problem.w_shape)
        a[1, ..., 1:] *= 2.0**-binades
        b[..., 0] = 0
        flags = np.empty(4 * CorrelationWithFallback.flags, "uint8")
        got = hosted.execute(plan, a, b, kernels=kernels, left=flags)[1]
        error = _errors(got, convolution.forward(a, b, problem)[1], 0).max() * 2.0**binades
        whole = error if whole is None else whole
        flagged.append(bool(flags.view("int32").any()))
        assert flagged[-1] or error <= 1.5 * whole
    assert not any(flagged[:2])
    assert flagged[-1]


# What split products of filter gradients, whose scales are those of blocks, cannot serve.
BLOCKS = {name for name in DATA if "infinity" in name or "NaN" in name or "channel of" in name}
BLOCKS |= {"subnormal", "one huge element"}


@pytest.mark.parametrize("name", DATA)
def test_no_accuracy_of_filter_gradients_is_lost(name: str) -> None:
    """As above, of every output and of every input channel."""
    problem = Problem.of((2, 5, 20, 36), (20, 3, 3, 36), padding=1)
    plan = _with_fallback(problem, "backward_filter")
    x, dy, again, in_order = _again(name, problem, "backward_filter")
    got = hosted.execute(plan, x, dy, kernels=_loaded(plan))
    assert not np.isnan(got).any() or "infinity" in name or "NaN" in name
    if name in BLOCKS:
        np.testing.assert_array_equal(got, again)
    if np.array_equal(got, again, equal_nan=True):
        return
    exact = convolution.backward_filter(x, dy, problem)
    for axis in (0, -1):
        own, of_order = (_errors(v, exact, axis) for v in (got, in_order))
        assert (own <= np.maximum(2 * of_order, FLOOR * _errors(exact, 0, axis))).all()


def test_flags_are_read_as_the_kernels_read_them() -> None:
    for flags in ((0, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 1, 0)):
        verify(flags)
    for flags in ((1, 0, 0, 0), (0, 1, 1, 0), (0, 0, 0, 1), (0, 1, 1)):
        with pytest.raises(ValueError, match="too far apart"):
            verify(flags)


def test_both_units_compile_as_one(compiled) -> None:
    plan = _with_fallback(PROBLEM, "forward")
    resources = compiled(plan.source())
    assert set(resources) == {"winolab_scan", *plan.shared()}
    assert {"winolab_gamma_ffma_filter_fallback", "winolab_gamma_ffma_fallback"} <= set(
        plan.shared()
    )
    assert not any(used.spills for used in resources.values()), resources


def test_the_fallback_spares_the_flags_alone() -> None:
    plan = _with_fallback(PROBLEM, "forward")
    assert plan.workspace == max(plan.primary.workspace, plan.header + plan.fallback.workspace)
    assert plan.predicted == plan.primary.predicted  # one launch in the place of another
    assert "fallback" in str(plan)


@pytest.mark.parametrize(("groups", "split_k"), [(3, 1), (1, 2), (2, 2)])
def test_one_launch_serves_groups_and_clusters(groups: int, split_k: int) -> None:
    problem = Problem.of((2, 3, 9, 16 * groups), (68 * groups, 3, 3, 16), padding=1, groups=groups)
    fast = _with_fallback(problem, "forward")
    shared = gamma_ffma.plans(Request(problem, "forward", H100, None, "fp32"))
    plan = replace(fast, fallback=next(p for p in shared if p.config.split_k == split_k))
    kernels, fallback = hosted.loaded(plan), hosted.loaded(plan.fallback)
    for name in ("normal", "NaN", "one huge element"):
        a, b = made(name, problem.x_shape, problem.w_shape)
        got = hosted.execute(plan, a, b, kernels=kernels)
        again = hosted.execute(plan.fallback, a, b, kernels=fallback)
        assert np.array_equal(got, again, equal_nan=True) == DATA[name][1]


def test_every_launch_behind_the_first_begins_early() -> None:
    plan, begun = _with_fallback(PROBLEM, "forward"), []
    assert isinstance(plan, CorrelationWithFallback)

    def record(grid, threads, params, early=False) -> None:
        begun.append(early)

    kernels = dict.fromkeys(plan.shared(), record)
    x, w = View(1 << 20, (64,) * 4), View(1 << 20, (64,) * 5)
    plan.launch(kernels, x, w, x, 1 << 40, 0)
    assert begun == [False] + [True] * 3
    begun.clear()
    plan.run(kernels, x, 1 << 30, x, 1 << 40, 0)
    assert begun == [False] + [True] * 2


@pytest.mark.gpu
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_calls_on_a_device_lose_nothing(direction: str) -> None:
    """As above, by the public calls: an error as FFMA's, or that of products of 22 bits. Filter
    gradients by TF32 parts, which nobody checks, err by their least step, too."""
    cupy = driver.cupy()
    problem = Problem.of((4, 29, 31, 64), (68, 3, 3, 64), padding=1)
    call, first, second, shape = {
        "forward": (conv_forward, problem.x_shape, problem.w_shape, ()),
        "backward_data": (
            conv_backward_data, problem.y_shape, problem.w_shape, (problem.x_shape,)
        ),
        "backward_filter": (
            conv_backward_filter, problem.x_shape, problem.y_shape, (problem.w_shape,)
        ),
    }[direction]  # fmt: skip
    for name in DATA:
        if direction == "backward_data" and "channel of" in name:
            continue  # the filter's input channels are not summed over
        a, b = made(name, first, second)
        operands = (cupy.asarray(a), cupy.asarray(b), *shape)
        # one tile for both, since infinities reach all of its outputs
        chosen = _chosen(Request(problem, direction, driver.device(0), None, "fp32_split"))
        (tile,) = chosen.fallback.tiles
        named = f"gamma:{tile.alpha}:{tile.n}:{tile.r}" if tile.alpha > 1 else "direct"
        named = None if direction == "backward_filter" else named
        got, ffma = (
            call(*operands, padding=1, precision=precision, algorithm=named).get()
            for precision in ("fp32_split", "fp32_ffma")
        )
        if direction == "backward_filter":  # Ω's tiles have more taps that NaN reaches
            assert (np.isfinite(got) >= np.isfinite(ffma)).all(), name
            assert not np.isfinite(got[_depends(a, b, problem)]).any(), name
        elif DATA[name][1] and "image" not in name:
            np.testing.assert_array_equal(np.isfinite(got), np.isfinite(ffma), name)
        with np.errstate(all="ignore"):
            exact = getattr(convolution, direction)(
                a.astype("float64"), b.astype("float64"), problem
            )
        kept = np.isfinite(exact) & np.isfinite(ffma)
        assert kept.any()
        got, ffma, exact = (np.where(kept, v, 0) for v in (got, ffma, exact))
        steps = _steps(a, b) if direction == "backward_filter" else 0.0
        for axis in (0, -1):
            own, of_ffma = (_errors(v, exact, axis) for v in (got, ffma))
            limit = np.maximum(of_ffma, FLOOR * _errors(exact, 0, axis))
            assert (own <= 1.5 * (limit + steps)).all(), name


@pytest.mark.gpu
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shape", [(8, 40, 41), (2, 7, 7)])
def test_fallbacks_beside_each_other_end(shape: tuple[int, ...], groups: int) -> None:
    """Blocks that wait for others must not keep these from running: FFMA's bits every time."""
    cupy = driver.cupy()
    problem = Problem.of((*shape, 96 * groups), (96 * groups, 3, 3, 96), padding=1, groups=groups)
    plan = _chosen(Request(problem, "forward", driver.device(0), None, "fp32_split"))
    kernels, alone = (kernels_of(p, 0) for p in (plan, plan.fallback))
    a, b = made("one huge element", problem.x_shape, problem.w_shape)
    x, w = cupy.asarray(a), cupy.asarray(b)
    inputs = _view(x, 4), _view(w, 5)
    space = cupy.empty(plan.fallback.workspace, "uint8")
    expected = cupy.empty(problem.y_shape, "float32")
    plan.fallback.launch(alone, *inputs, _view(expected, 4), space.data.ptr, 0)
    cupy.cuda.Device().synchronize()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    places = [(cupy.empty_like(expected), cupy.empty(plan.workspace, "uint8")) for _ in streams]
    for _ in range(10):
        for y, _ in places:
            y.fill(np.nan)
        cupy.cuda.Device().synchronize()
        for stream, (y, space) in zip(streams, places, strict=True):
            with stream:
                for _ in range(3):
                    plan.launch(kernels, *inputs, _view(y, 4), space.data.ptr, 0)
        cupy.cuda.Device().synchronize()
        for y, _ in places:
            np.testing.assert_array_equal(y.get(), expected.get())


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["normal", "NaN", "one huge element"])
def test_prepared_filters_are_checked_too(name: str) -> None:
    cupy = driver.cupy()
    problem = Problem.of((4, 29, 31, 64), (68, 3, 3, 64), padding=1)
    x, w = map(cupy.asarray, made(name, problem.x_shape, problem.w_shape))
    how = {"padding": 1, "precision": "fp32_split"}
    prepared = prepare_filter(w, problem.x_shape, **how)
    np.testing.assert_array_equal(
        conv_forward(x, prepared, **how).get(), conv_forward(x, w, **how).get()
    )
    if DATA[name][1]:
        with pytest.raises(ValueError, match="too far apart"):
            conv_forward(x, prepared, **how, on_range="raise")
    else:
        conv_forward(x, prepared, **how, on_range="raise")


@pytest.mark.gpu
def test_a_graph_holds_both_units() -> None:
    cupy = driver.cupy()
    plan = _with_fallback(PROBLEM, "forward")
    kernels = kernels_of(plan, 0)
    x, w = (cupy.empty(s, "float32") for s in (PROBLEM.x_shape, PROBLEM.w_shape))
    y, space = cupy.empty(PROBLEM.y_shape, "float32"), cupy.empty(plan.workspace, "uint8")
    inputs = (_view(x, 4), _view(w, 5))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan.launch(kernels, *inputs, _view(y, 4), space.data.ptr, 0)
        graph = stream.end_capture()
    for name in ("normal", "NaN", "normal", "one huge element"):
        a, b = made(name, PROBLEM.x_shape, PROBLEM.w_shape)
        x.set(a)
        w.set(b)
        y.fill(np.nan)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        lost, zero, tiny, right = space[:16].view("int32").get()
        assert bool(lost or right or (zero and tiny)) == DATA[name][1]
        expected = cupy.empty_like(y)
        plan.launch(kernels, *inputs, _view(expected, 4), space.data.ptr, 0)
        np.testing.assert_array_equal(y.get(), expected.get())
