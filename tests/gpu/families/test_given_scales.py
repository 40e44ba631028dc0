"""Scales that the caller gives: the reference's bits, and those that do not serve the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.support.picked import looked_at
from winolab import conv_backward_data, conv_forward, prepare_filter
from winolab.algorithm import Problem, parse_algorithm
from winolab.bench.oracle import relative_rms
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.families.gamma.config import KC
from winolab.gpu.families.gamma_wgmma import plan as gamma_wgmma
from winolab.gpu.families.gamma_wgmma.config import Config
from winolab.gpu.families.scale import SAMPLERS, THREADS
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import SCALING
from winolab.gpu.planner.fallback import CorrelationWithFallback
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.order import Order
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.arithmetic.split import HEADROOM, Scale

PROBLEM = Problem.of((2, 4, 9, 64), (64, 3, 3, 64), padding=1)
# Standard normal data: what a sample finds (a magnitude of 4 and more), and 2^11 too much of it.
FOUND, TOO_LARGE, TOO_SMALL = f"peaks:{2 + HEADROOM}", "peaks:-9", "peaks:22"
BITS = [
    ("gamma:8:6:3", "forward", (1, 4, 13, 64), (24, 3, 3, 64), Config(4, 3)),
    ("gamma:8:6:3", "forward", (1, 4, 13, 64), (24, 3, 3, 64), Config(4, 3, 2)),
    ("gamma:8:6:3", "forward", (1, 4, 13, 96), (24, 3, 3, 96), Config(4, 3)),  # blocks share w
    ("gamma:8:6:3", "forward", (1, 4, 13, 96), (24, 3, 3, 96), Config(4, 3, u_ring=2)),
    ("gamma:8:6:3", "backward_data", (1, 4, 13, 24), (64, 3, 3, 24), Config(4, 1)),
    ("gamma:8:4:5", "forward", (1, 5, 9, 32), (8, 5, 5, 32), Config(8, 5)),
    ("gamma:8:4:5", "forward", (1, 5, 9, 48), (8, 5, 5, 48), Config(8, 5, fold=3)),
    ("gamma:8:2:7", "backward_data", (2, 3, 9, 12), (32, 2, 7, 12), Config(4, 2)),
    ("gamma:4:2:3", "forward", (1, 4, 9, 48), (12, 3, 3, 48), Config(8, 3)),
    ("gamma:6:4:3", "forward", (2, 4, 8, 32), (24, 3, 3, 32), Config(8, 3, u_ring=3)),
    ("gamma:10:4:7", "forward", (1, 5, 9, 36), (56, 4, 7, 36), Config(8, 4, u_ring=2)),
    # zeros of an eighth filter row and of 8 channels
    ("gamma:6:3:4", "backward_data", (1, 5, 9, 32), (40, 7, 4, 32), Config(8, 4, u_ring=3)),
]


def _data(problem: Problem, direction: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    a, b = (rng.standard_normal(s).astype("float32") for s in (shape, problem.w_shape))
    a.reshape(-1)[0] = 4.5
    return np.clip(a, -7, 7), b


def _bits(text: str, direction: str, x_shape, w_shape, config: Config):
    """A plan with given scales, its data, and what the reference says of them."""
    problem = Problem.of(x_shape, w_shape, padding=1)
    found = gamma_wgmma.plans(
        Request(problem, direction, H100, parse_algorithm(text), "fp32_split", config=config)
    )
    asked = [p for p in found if (p.config.fold, p.config.u_ring) == (config.fold, config.u_ring)]
    chosen = replace(min(asked, key=lambda p: p.predicted), given=Scale.of_caller((8, 9)))
    a, b = _data(problem, direction)
    order = Order(KC, chosen.config.share, chosen.config.split_k, padded=True)
    rows = f"{text};scaling={SCALING}"
    expected = getattr(winograd, direction)(
        a, b, problem, parse_algorithm(rows), arithmetic(chosen.simulated), order=order
    )
    return chosen, a, b, expected


@pytest.mark.parametrize("case", BITS, ids=str)
def test_the_reference_repeats_every_bit(case) -> None:
    chosen, a, b, expected = _bits(*case)
    np.testing.assert_array_equal(hosted.execute(chosen, a, b), expected)


@pytest.mark.parametrize("case", BITS, ids=str)
def test_a_plan_is_found_again_by_its_config(case) -> None:
    text, direction, x_shape, w_shape, _ = case
    problem, algorithm = Problem.of(x_shape, w_shape, padding=1), parse_algorithm(text)
    request = Request(problem, direction, H100, algorithm, "fp32_split")
    found = {p.config for p in gamma_wgmma.plans(request)}
    assert len(found) > (2 if text.startswith("gamma:10") else 5)
    for config in sorted(found, key=str)[::4]:
        assert plan(replace(request, config=config)).config == config


def _chosen(scale: str | None = None, direction: str = "forward") -> CorrelationWithFallback:
    found = looked_at(Request(PROBLEM, direction, H100, None, "fp32_split"))
    assert isinstance(found, CorrelationWithFallback)
    return found.scaled(Scale.of_caller(scale) if scale else None)


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_what_a_sample_finds_gives_the_same_bits(direction) -> None:
    a, b = _data(PROBLEM, direction)
    got, found = (hosted.execute(_chosen(scale, direction), a, b) for scale in (FOUND, None))
    np.testing.assert_array_equal(got, found)
    assert not np.array_equal(got, hosted.execute(_chosen(None, direction).fallback, a, b))


@pytest.mark.parametrize("scale", [TOO_LARGE, TOO_SMALL, "126", "-113", "11:-20", "11:60"])
def test_scales_that_do_not_serve_the_data_are_found_out(scale) -> None:
    a, b = _data(PROBLEM, "forward")
    again = hosted.execute(_chosen().fallback, a, b)
    np.testing.assert_array_equal(hosted.execute(_chosen(scale), a, b), again)


@pytest.mark.parametrize("size", [2.0**-105, 1e-30, 1e30, 3.4e38])
def test_any_magnitude_can_be_given(size) -> None:
    """As exact as numbers near 1 are."""
    a, b = _data(PROBLEM, "forward")
    a, b = (
        (np.float64(a) * (size / 8)).astype("float32"),
        b * np.float32(1e-30 if size > 1 else 1e30),
    )
    exponent = int(np.floor(np.log2(np.abs(a).max())))
    got = hosted.execute(_chosen(f"peaks:{exponent}"), a, b)
    exact = convolution.forward(a.astype(float), b.astype(float), PROBLEM)
    assert relative_rms(got, exact) <= 16 * 2**-24
    assert not np.array_equal(got, hosted.execute(_chosen().fallback, a, b))


def test_the_sampling_is_spared() -> None:
    """One block, which clears the flags, where the caller knows the scales."""
    blocks = []

    def record(grid, threads, params, early=False) -> None:
        blocks.append(grid[0])

    def other(grid, threads, params, early=False) -> None: ...

    kernels = dict.fromkeys(_chosen().shared(), other) | {"winolab_scale": record}
    view = View(1 << 20, (64, 64, 64, 64))
    for scale in (None, "11"):
        _chosen(scale).run(kernels, view, 1 << 30, view, 1 << 40, 0)
    images = -(-PROBLEM.batch // (THREADS // 32))
    assert blocks == [SAMPLERS + images, 1]


def test_numpy_arrays_run_the_reference_with_it() -> None:
    a, b = _data(PROBLEM, "forward")
    how = {"padding": 1, "algorithm": "gamma:8:6:3"}
    for scale, text in (
        ((8, 9), "8:9"),
        ("peaks:3:2", "peaks:3:2"),
        (8, "8"),
        ("peaks:3", "peaks:3"),
    ):
        np.testing.assert_array_equal(
            conv_forward(a, b, precision="fp32_split", scale=scale, **how),
            conv_forward(a, b, precision=f"fp32_split,scale={text}", **how),
        )
    prepared = prepare_filter(b, a.shape, precision="fp32_split", scale="8:9", **how)
    expected = conv_forward(a, b, precision="fp32_split", scale=(8, 9), **how)
    np.testing.assert_array_equal(conv_forward(a, prepared, **how), expected)
    np.testing.assert_array_equal(conv_forward(a, prepared, scale="8:9", **how), expected)
    other = conv_forward(a, prepared, scale=3, **how)
    np.testing.assert_array_equal(other, conv_forward(a, b, precision="fp32_split", scale=3, **how))
    small = a * np.float32(1e-6)  # of which exponent 0 loses low parts, and its absence does not
    plain = prepare_filter(b, a.shape, precision="fp32_split", **how)
    zero = conv_forward(small, plain, scale=0, **how)
    np.testing.assert_array_equal(
        zero, conv_forward(small, b, precision="fp32_split", scale=0, **how)
    )
    assert (zero != conv_forward(small, plain, **how)).any()
    with pytest.raises(ValueError, match=r"prepared with scale 8:9, not 8:10"):
        conv_forward(a, prepared, scale="8:10", **how)


@pytest.mark.parametrize(
    ("scale", "options", "message"),
    [
        ("absmax", {}, "without a scale"),
        ("none", {}, "without a scale"),
        ("eleven", {}, "expected exponents"),
        ((1, 2, 3), {}, "expected exponents"),
        (1.5, {}, "expected exponents"),
        (127, {}, "exponent 127 of the first tensor; expected -113 to 126"),
        ("0:-114", {}, "exponent -114 of the second tensor"),
        ("peaks:128", {}, "expected -149 to 127"),
        (11, {"precision": "fp32_ffma"}, "fp32_ffma takes no scale"),
        (11, {"precision": "fp16"}, "fp16 takes no scale"),
        (11, {"precision": "fp32_split,scale=1:1"}, "another one is given"),
    ],
)
def test_wrong_scales_are_refused(scale, options, message) -> None:
    a, b = _data(PROBLEM, "forward")
    with pytest.raises(ValueError, match=message):
        conv_forward(a, b, padding=1, scale=scale, **options)
    with pytest.raises(ValueError, match=message):
        conv_backward_data(a, b, a.shape, padding=1, scale=scale, **options)


def test_other_dtypes_take_none() -> None:
    a, b = (v.astype("float16") for v in _data(PROBLEM, "forward"))
    with pytest.raises(ValueError, match="float16 takes no scale"):
        conv_forward(a, b, padding=1, scale=11)


@pytest.mark.gpu
@pytest.mark.parametrize("case", BITS, ids=str)
def test_the_reference_repeats_every_bit_of_the_device(case) -> None:
    from tests.gpu.support.convolved import convolved

    cupy = driver.cupy()
    chosen, a, b, expected = _bits(*case)
    text, direction = case[:2]
    got = convolved(
        direction, *map(cupy.asarray, (a, b)), problem=chosen.problem, algorithm=text,
        precision="fp32_split", config=chosen.config, scale=chosen.given,
    )  # fmt: skip
    np.testing.assert_array_equal(got.get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_calls_with_scales(direction: Any) -> None:
    cupy = driver.cupy()
    problem = Problem.of((4, 29, 31, 64), (64, 3, 3, 64), padding=1)
    a, b = map(cupy.asarray, _data(problem, direction))
    call, shape = (
        (conv_forward, ()) if direction == "forward" else (conv_backward_data, (problem.x_shape,))
    )
    known = {"padding": 1, "algorithm": "gamma:6:4:3"}
    named = parse_algorithm(known["algorithm"])
    chosen = plan(Request(problem, direction, driver.device(0), named, "fp32_split"))
    assert isinstance(chosen, CorrelationWithFallback)
    (tile,) = chosen.fallback.tiles
    again = {"padding": 1, "algorithm": f"gamma:{tile.alpha}:{tile.n}:{tile.r}"}
    prepared = prepare_filter(
        b, problem.x_shape, precision="fp32_split", direction=direction, **known
    )

    def got(w, scale, precision="fp32_split", **how) -> np.ndarray:
        how |= {"padding": 1} if w is prepared else known
        return call(a, w, *shape, precision=precision, scale=scale, **how).get()

    found = got(b, None)
    ffma = call(a, b, *shape, precision="fp32_ffma", **again).get()
    for w in (b, prepared):
        np.testing.assert_array_equal(got(w, FOUND, on_range="raise"), found)
        for scale in (TOO_LARGE, TOO_SMALL, 126, -113):
            np.testing.assert_array_equal(got(w, scale), ffma)
            with pytest.raises(ValueError, match="a scale that was given"):
                got(w, scale, on_range="raise")
    assert not np.array_equal(found, ffma)
