"""Predictions know the formats' ranges: underflow and overflow against simulation."""

import math

import numpy as np
import pytest

from winolab.algorithm import Problem, Tile, parse_algorithm
from winolab.device import H100
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.metrics import compare, error_ratio
from winolab.ref.error.predict import Moments, predict


def simulated(text, precision, size=1.0, *, data="normal", channels=16):
    """What predict says, the measured relative RMS, and the part of outputs that are finite."""
    rng = np.random.default_rng(0)
    run, algorithm = arithmetic(precision), parse_algorithm(text)
    taps = (2, algorithm.tiles[-1].r) if algorithm.tiles else (2, 3)
    width = 2 * (algorithm.tiles[-1].n if algorithm.tiles else 8)
    shapes = (1, 4, width + taps[1] - 1, channels), (16, *taps, channels)
    draw = rng.standard_normal if data == "normal" else lambda s: rng.uniform(-1, 1, s)
    x, w = (
        run.to_float64(run.asarray(draw(s) * e)) for s, e in zip(shapes, (size, 1.0), strict=True)
    )
    problem = Problem.of(x.shape, w.shape)
    y = run.to_float64(winograd.forward(x, w, problem, algorithm, run))
    found = predict(Moments.of(x), Moments.of(w), problem, algorithm, run)
    error = compare(y, convolution.forward(x, w, problem)).relative_rms
    return found, error, float(np.isfinite(y).mean())


@pytest.mark.parametrize("text", ["gamma:16:14:3", "gamma:16:12:5", "gamma:16:8:9@paper"])
@pytest.mark.parametrize("precision", ["fp16", "fp32_split,scale=none", "fp32_split", "bf16"])
def test_alpha_16_underflows(text, precision):
    """FP16 and split products unscaled erred 428 to 920 times their prediction, and more."""
    found, error, _ = simulated(text, precision)
    assert 0.8 <= found.relative_rms / error <= 1.2
    assert found.overflow == 0
    if (text, precision) in (
        ("gamma:16:14:3", "fp16"),
        ("gamma:16:12:5", "fp32_split,scale=none"),
        ("gamma:16:14:3", "fp32_split"),
    ):
        assert found.range == "underflow"
    if precision == "bf16":  # FP32's exponents
        assert (found.shares["underflow"], found.range) == (0, "")


@pytest.mark.parametrize(
    ("text", "precision", "size"),
    [
        ("gamma:8:6:3", "fp32_split,scale=none", 1e-3),
        ("direct", "fp32_split,scale=none", 2.0**-14),
        ("direct", "fp16,accumulate=fp16,accumulation=sequential", 2.0**-12),
        ("gamma:8:6:3", "fp16,sums=fp16", 2.0**-10),
        ("direct", "fp32", 2.0**-128),
        ("gamma:14:12:3", "fp32,filters=fp16", 1.0),
        ("gamma:8:6:3", "fp32,transform=fp16", 2.0**-12),
        ("gamma:4:2:3", "fp32,transform=fp16", 1.0),  # powers of two round what is not FP16's
    ],
)
def test_other_stages_underflow(text, precision, size):
    found, error, _ = simulated(text, precision, size)
    assert 0.8 <= found.relative_rms / error <= 1.2


@pytest.mark.parametrize("text", ["gamma:16:8:9", "gamma:16:14:3", "gamma:8:6:3", "direct"])
@pytest.mark.parametrize("precision", ["fp16", "fp32_split,scale=none", "bf16", "fp16,sums=fp16"])
def test_overflow_is_predicted(text, precision):
    """|x| ≤ 1000: what overflows in the transforms, of the outputs that then are not finite."""
    found, _, finite = simulated(text, precision, 1000.0, data="uniform")
    assert found.overflow == pytest.approx(1 - finite, abs=0.1)
    assert (found.range == "overflow") == (finite < 1) == math.isinf(found.relative_rms)


def test_what_transforms_do_not_hold_overflows():
    """States that FP16 holds add up to more, and constants may be beyond it themselves."""
    found, _, finite = simulated("gamma:16:8:9", "fp32,transform=fp16", 30.0, data="uniform")
    assert found.overflow == pytest.approx(1 - finite, abs=0.1)
    assert 0.1 < 1 - finite < 0.2
    found, _, finite = simulated("gamma:16:14:3", "fp32,transform=fp16")
    assert (found.overflow, found.range) == (1.0, "overflow")
    assert finite < 1


def test_simulated_says_what_kernels_scale_by():
    """Γ on Tensor Cores has powers of two in FP16's BT and AT: nothing overflows."""
    problem = Problem.of((1, 8, 38, 64), (64, 3, 3, 64), padding=1)
    chosen = plan(Request(problem, "forward", H100, parse_algorithm("gamma:8:6:3"), "fp16"))
    assert chosen.simulated == "fp16,accumulation=tensor_core:16:2:truncate,scale=-4:-1"
    large = Moments(0.0, 1e8, peak=6e4)
    algorithm = parse_algorithm("gamma:8:6:3;scaling=filter")
    one = Moments(0.0, 1.0)
    runs = (arithmetic(t) for t in (chosen.simulated, "fp16"))
    scaled, plain = (predict(large, one, problem, algorithm, run) for run in runs)
    assert scaled.overflow == 0
    assert math.isfinite(scaled.relative_rms)
    assert plain.overflow > 0.5
    assert plain.range == "overflow"


def test_what_underflows_is_not_admissible():
    assert error_ratio(Tile(14, 3), precision="fp16") > 50 * error_ratio(
        Tile(14, 3), precision="fp16", scaling="filter"
    )


def test_moments_know_their_range():
    assert Moments.of(np.array([1.0, -3.0])).peak == 3
    assert Moments(0.0, 4.0).expected == 10
    assert Moments(0.0, 0.0).largest == 0
    assert math.isinf(Moments(0.0, 4.0).largest)
    for tiny in (1e-200, 1e200):  # FP64 does not hold the squares
        assert math.isnan(Moments.of(np.full(3, tiny)).variance)
