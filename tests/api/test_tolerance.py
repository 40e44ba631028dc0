"""Tolerances: what rounding does is accepted, what it cannot do refused, and how sure that is."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import winolab
from winolab.api.peers import EXAMPLES, peer
from winolab.api.tolerance import Checked
from winolab.problem import Problem, shapes

X, W = (2, 20, 18, 12), (8, 3, 3, 12)
PROBLEM = Problem.of(X, W, padding=1)
DIRECTIONS = ("forward", "backward_data", "backward_filter")


def operands(direction: str, seed: int = 0, dtype: str = "f4") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    first, second, _ = shapes(direction, PROBLEM)
    return rng.standard_normal(first).astype(dtype), rng.standard_normal(second).astype(dtype)


def run(direction: str, a: np.ndarray, b: np.ndarray, **how: Any) -> np.ndarray:
    given = {"backward_data": (X,), "backward_filter": (W,)}.get(direction, ())
    return getattr(winolab, f"conv_{direction}")(a, b, *given, padding=1, **how)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "tf32"])
@pytest.mark.parametrize(
    ("direction", "algorithm"),
    [("forward", "direct"), ("forward", "winograd:4x4:3x3"), ("backward_data", "gamma:8:6:3"),
     ("backward_data", "dwm:3:2"), ("backward_filter", "winograd:3x3:2x2"),
     ("backward_filter", "winrs"), ("forward", "fft:16")],
)  # fmt: skip
def test_what_the_algorithm_returns_is_accepted(direction: Any, algorithm, precision) -> None:
    dtype = "f2" if precision == "fp16" else "f4"
    for seed in range(4):
        a, b = operands(direction, seed, dtype)
        y = run(direction, a, b, algorithm=algorithm, precision=precision)
        how = {"direction": direction, "algorithm": algorithm, "precision": precision}
        found = winolab.tolerance(X, W, padding=1, data=(a, b), **how)
        checked = found.check(y)
        assert checked, str(checked)
        assert checked.impossible == checked.outside == 0
        assert checked.relative_rms <= found.most
        exact = run(direction, a.astype(float), b.astype(float))
        for pair in (found.predicted, found.proven):
            assert pair.atol == np.inf or np.allclose(y.astype(float), exact, **vars(pair))
        # of data of which moments alone are known, too
        normal = winolab.tolerance(X, W, padding=1, data="normal", **how)
        assert np.allclose(y.astype(float), exact, **vars(normal.predicted))
        assert normal.predicted.atol < 6 * found.predicted.atol
        assert found.predicted.atol <= found.proven.atol


FAULTS = {
    "one result is not written": lambda y, x, w: y.__setitem__((1, 3, 4, 5), 0.0),
    "one result is not a number": lambda y, x, w: y.__setitem__((0, 0, 0, 0), np.nan),
    "a row is shifted": lambda y, x, w: y.__setitem__((0, 7), np.roll(y[0, 7], 1, 0)),
    "a bit of a significand flips": lambda y, x, w: y.view("i4").__ixor__(
        np.where(np.arange(y.size).reshape(y.shape) == 77, 1 << 16, 0).astype("i4")
    ),
    "TF32 for FP32": lambda y, x, w: y.__setitem__(
        ..., winolab.conv_forward(x, w, padding=1, precision="tf32")
    ),
    "another tile": lambda y, x, w: y.__setitem__(
        ..., winolab.conv_forward(x, w, padding=1, algorithm="winograd:4x4:3x3")
    ),
    "results rounded to FP16": lambda y, x, w: y.__setitem__(..., y.astype("f2")),
}


@pytest.mark.parametrize("fault", [*FAULTS])
def test_what_rounding_does_not_do_is_refused(fault: str) -> None:
    x, w = operands("forward")
    found = winolab.tolerance(X, W, padding=1, algorithm="winograd:2x2:3x3", data=(x, w))
    y = winolab.conv_forward(x, w, padding=1, algorithm="winograd:2x2:3x3")
    assert found.check(y)
    FAULTS[fault](y, x, w)
    checked = found.check(y)
    assert not checked
    assert checked.reason
    assert "\n" not in checked.reason
    assert str(checked).startswith(f"refused: {checked.reason}")
    assert "not finite" in checked.reason or fault != "one result is not a number"


def test_confidence_is_the_chance_that_no_result_is_outside() -> None:
    """A quarter of many problems may exceed what is said to hold of three quarters; few do."""
    exceeded = 0
    for seed in range(60):
        a, b = operands("forward", seed)
        found = winolab.tolerance(
            X, W, padding=1, algorithm="winograd:2x2:3x3", data="normal", confidence=0.75
        )
        y = run("forward", a, b, algorithm="winograd:2x2:3x3")
        exact = run("forward", a.astype(float), b.astype(float))
        exceeded += not np.allclose(y, exact, **vars(found.predicted))
    assert exceeded <= 15
    values = [
        winolab.tolerance(X, W, padding=1, confidence=c).predicted.atol for c in (0.5, 0.9, 0.9999)
    ]
    assert values == sorted(values)
    more = winolab.tolerance((20, *X[1:]), W, padding=1, confidence=0.5)
    assert more.predicted.atol > values[0]


def test_layouts_and_result_types() -> None:
    x, w = operands("forward")
    first = np.moveaxis(x, -1, 1), np.moveaxis(w, -1, 1)
    how: dict[str, Any] = {"padding": 1, "layout": "channels_first"}
    found = winolab.tolerance(first[0].shape, first[1].shape, data=first, **how)
    y = winolab.conv_forward(*first, **how)
    assert found.check(y)
    y[1, 5, 3, 4] += 1
    checked = found.check(y)
    assert (checked.at, bool(checked)) == ((1, 5, 3, 4), False)
    half = winolab.tolerance(X, W, padding=1, data=(x, w), out_dtype="float16")
    assert half.predicted.rtol == half.proven.rtol == 2.0**-11
    assert half.check(winolab.conv_forward(x, w, padding=1, out_dtype="float16"))
    assert not half.check(winolab.conv_forward(x, w, padding=1).astype("f2") * np.float16(1.002))
    with pytest.raises(ValueError, match=r"y has dtype float16, .* out_dtype float16"):
        found.check(y.astype(np.float16))
    y[0, 2, 1, 3] = np.nan
    lost = found.check(y)
    assert str(lost) == f"refused: 1 of {y.size} results is not finite, the first at (0, 2, 1, 3)"
    told = json.loads(json.dumps(half.to_dict()))
    assert (told["result"], told["results"]) == ("fp16", 2 * 20 * 18 * 8)
    assert told["predicted"] == {"rtol": 2.0**-11, "atol": half.predicted.atol}


@pytest.mark.parametrize(
    ("name", "direction", "algorithm", "precision"),
    [
        ("cudnn:implicit_precomp_gemm", "forward", "direct", "fp16"),
        ("cudnn:winograd", "forward", "winograd:2x2:3x3", "fp16"),
        ("CUDNN:WINOGRAD_NONFUSED", "backward_filter", "winograd:3x3:4x4", "fp16"),
        ("cudnn:fft", "forward", "fft:32x32:3", "fp16"),
        ("cudnn:fft_tiling", "forward", "fft:32:3", "fp16"),
        ("miopen:ConvBinWinogradRxSf2x3g1", "forward", "winograd:2x2:3x3", "fp16,transform=fp16"),
        ("miopen:ConvBinWinogradRxSf3x2", "backward_filter", "winograd:3x3:2x2",
         "fp16,transform=fp16"),
        ("miopen:ConvMPBidirectWinograd<6-3>", "forward", "winograd:6x6:3x3",
         "fp16,transform=fp16"),
        ("miopen:ConvWinoFuryRxS<2-3>", "forward", "winograd:2x2:3x3", "fp16,transform=fp16"),
        ("miopen:GemmFwdRest", "forward", "direct", "fp16"),
        ("miopen:ConvDirectNaiveConvFwd", "forward", "direct", "fp16"),
        ("acl:winograd", "forward", "winograd:4x4:3x3",
         "fp16,transform=fp16,accumulate=fp16,accumulation=sequential"),
        ("onednn:jit_wino_4x3", "forward", "winograd:4x4:3x3", "fp16"),
        ("F(4x4,3x3)", "forward", "winograd:4x4:3x3", "fp16"),
        ("F(2×2, 5×5)", "forward", "winograd:2x2:5x5", "fp16"),
    ],
)  # fmt: skip
def test_other_libraries_algorithms_mean_tiles(name, direction, algorithm, precision) -> None:
    found = peer(name, PROBLEM, direction, "fp16")
    assert found is not None
    assert (str(found.algorithm), found.precision) == (algorithm, precision)


def test_unknown_names_are_refused_in_one_line() -> None:
    assert peer("gamma:8:6:3", PROBLEM, "forward", "fp32") is None
    for name in EXAMPLES:
        told = winolab.tolerance(X, W, algorithm=name)
        assert str(told).splitlines()[1].startswith(f"{name}: {told.layer.algorithm} in fp32")
    for name, message in (
        ("cudnn:magic", "unknown algorithm 'cudnn:magic'; of other libraries there are names such"),
        (
            "cudnn",
            "unknown algorithm 'cudnn'; of other libraries there are names such as cudnn:wino",
        ),
        ("magic:winograd", "unknown algorithm 'magic:winograd'; accepted are forms like"),
    ):
        with pytest.raises(ValueError, match=message):
            winolab.tolerance(X, W, algorithm=name)
    with pytest.raises(ValueError, match="has no tile for a filter of 2 taps"):
        winolab.tolerance(X, (8, 2, 2, 12), algorithm="acl:winograd")


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"confidence": 1.0}, ValueError, "confidence is 1.0; expected a number between 0 and 1"),
        ({"confidence": "high"}, TypeError, "confidence is 'high'; expected a number"),
        ({"out_dtype": "int8"}, TypeError, "out_dtype is int8; expected one of float64"),
    ],
)
def test_it_refuses_in_one_line(how: Any, error, message: str) -> None:
    with pytest.raises(error, match=message) as refused:
        winolab.tolerance(X, W, **how)
    assert "\n" not in str(refused.value)


def test_a_check_needs_the_operands() -> None:
    x, w = operands("forward")
    with pytest.raises(ValueError, match="a check needs the operands; give data as the two arrays"):
        winolab.tolerance(X, W).check(np.zeros(PROBLEM.y_shape))
    with pytest.raises(ValueError, match=r"y has shape \(3,\); expected \(2, 18, 16, 8\)"):
        winolab.tolerance(X, W, data=(x, w)).check(np.zeros(3))
    with pytest.raises(TypeError, match="y has dtype complex128; expected real numbers"):
        winolab.tolerance(X, W, data=(x, w)).check(np.full((2, 18, 16, 8), 1j))
    zeros = winolab.tolerance(X, W, data=(0 * x, w))
    assert zeros.check(np.zeros((2, 18, 16, 8)))
    assert isinstance(zeros.check(np.full((2, 18, 16, 8), 1e-30)), Checked)
    assert not zeros.check(np.full((2, 18, 16, 8), 1e-3))


@pytest.mark.parametrize("algorithm", ["direct", "winograd:2x2:3x3", "fft:16:3"])
def test_right_results_below_the_least_normal_number_are_accepted(algorithm: str) -> None:
    """Results of 1e-5 in 16 bits are 6e-8 apart: those of a right kernel err by 2e-3, too."""
    x, w = ((1e-3 * v).astype("f2") for v in operands("forward"))
    y = winolab.conv_forward(x, w, algorithm=algorithm, padding=1)
    how: dict[str, Any] = {"padding": 1, "precision": "fp16", "algorithm": algorithm}
    found = winolab.tolerance(x.shape, w.shape, data=(x, w), **how)
    assert found.most > 2e-3
    assert found.check(y)
    assert not found.check(1.02 * y.astype(float))


@pytest.mark.parametrize("algorithm", ["direct", "winograd:2x2:3x3", "gamma:8:6:3", "fft:8:3"])
@pytest.mark.parametrize("element", [np.nan, np.inf])
def test_results_of_nan_and_infinity_are_judged(algorithm: str, element: float) -> None:
    """Right ones are accepted; numbers in their place, NaN elsewhere and errors are not."""
    x, w = operands("forward")
    x[1, 5, 6, 3] = element
    how: dict[str, Any] = {"padding": 1, "algorithm": algorithm}
    y = winolab.conv_forward(x, w, **how)
    found = winolab.tolerance(x.shape, w.shape, data=(x, w), **how)
    assert math.isfinite(found.predicted.atol)
    assert found.check(y)
    for place, value, reason in (
        ((1, 5, 6, 2), 1.0, "1 of 5760 results is not the NaN or infinity that its operands"),
        ((0, 5, 6, 2), np.nan, "1 of 5760 results is not finite"),
        ((1, 17, 15, 7), 1e3, "1 of 5760 results errs more than any rounding does"),
    ):
        wrong = y.copy()
        wrong[place] = value
        checked = found.check(wrong)
        assert not checked
        if algorithm != "fft:8:3" or value != 1e3:
            assert reason in checked.reason


def test_a_filter_that_holds_nan_is_judged() -> None:
    x, w = operands("forward")
    w[3, 0, 0, 2] = np.nan
    y = winolab.conv_forward(x, w, padding=1)
    found = winolab.tolerance(x.shape, w.shape, padding=1, data=(x, w))
    assert found.check(y)
    y[0, 0, 0, 3] = winolab.conv_forward(x, np.nan_to_num(w), padding=1)[0, 0, 0, 3]
    assert found.check(y)  # the tap of NaN meets padding alone
    y[0, 4, 4, 3] = 0
    assert not found.check(y)


@pytest.mark.parametrize(
    ("direction", "zeros"),
    [
        ("forward", (np.s_[1:], np.s_[::2])),  # images, filters
        ("backward_data", (np.s_[1:], np.s_[..., ::2])),  # images, channels of filters
        ("backward_filter", (np.s_[..., ::3], np.s_[..., 1::2])),  # channels of x and dy
    ],
)
def test_images_and_filters_of_zeros_narrow_no_tolerance(direction: Any, zeros: tuple) -> None:
    """Their results are exact; those of the others err as they did, over fewer results."""
    arrays = operands(direction)
    whole = winolab.tolerance(X, W, direction=direction, padding=1, data=arrays)
    for array, zero in zip(arrays, zeros, strict=True):
        array[zero] = 0
    some = winolab.tolerance(X, W, direction=direction, padding=1, data=arrays)
    assert some.relative_rms == pytest.approx(whole.relative_rms, rel=0.1)
    assert some.most / some.relative_rms > whole.most / whole.relative_rms
    assert some.check(run(direction, *arrays))
