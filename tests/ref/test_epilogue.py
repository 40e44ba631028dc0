"""What follows a convolution of NumPy arrays, step by step."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

import winolab
from winolab.arguments.epilogue import Activation
from winolab.ref.epilogue import activated, silu

SHAPE, FILTER = (2, 5, 6, 4), (7, 3, 3, 4)
DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)


def arrays(dtype: Any) -> tuple[np.ndarray, ...]:
    """x, w, bias and residual."""
    rng = np.random.default_rng(45)
    shapes = (SHAPE, FILTER, FILTER[:1], (*SHAPE[:-1], FILTER[0]))
    return tuple(rng.normal(size=shape).astype(dtype) for shape in shapes)


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_are_what_they_are_one_by_one(dtype: Any, layout: Any) -> None:
    x, w, bias, residual = arrays(dtype)
    last = layout == "channels_last"
    if not last:
        x, w, residual = (np.moveaxis(v, -1, 1) for v in (x, w, residual))
    how: dict[str, Any] = {"padding": 1, "layout": layout}
    y = winolab.conv_forward(x, w, **how)
    biased = winolab.conv_forward(x, w, bias=bias, **how)
    assert biased.dtype == y.dtype == dtype
    assert (biased == y + (bias if last else bias[:, None, None])).all()
    added = winolab.conv_forward(x, w, bias=bias, residual=residual, **how)
    assert (added == biased + residual).all()
    assert (winolab.conv_forward(x, w, residual=residual, **how) == y + residual).all()
    out = residual.copy()  # may lie over what is added
    relu = winolab.conv_forward(x, w, bias=bias, residual=out, activation="relu", out=out, **how)
    assert relu is out
    assert (relu == np.maximum(added, 0)).all()
    leaky = winolab.conv_forward(x, w, bias=bias, activation="leaky_relu:0.3", **how)
    wide = np.float64 if dtype == np.float64 else np.float32
    slope = (biased.astype(wide) * wide(0.3)).astype(dtype)
    assert (leaky == np.where(biased > 0, biased, slope)).all()
    smooth = winolab.conv_forward(x, w, bias=bias, activation="silu", **how)
    assert (smooth == activated(biased, Activation("silu"))).all()


def test_silu_is_within_four_units_of_the_exact_one() -> None:
    y = np.random.default_rng(0).normal(0, 8, 2000).astype(np.float32)
    with mpmath.workprec(80):
        exact = [mpmath.mpf(float(v)) / (1 + mpmath.exp(-mpmath.mpf(float(v)))) for v in y]
        errors = [
            abs(mpmath.mpf(float(got)) - want) / abs(want)
            for got, want in zip(silu(y), exact, strict=True)
        ]
    assert max(errors) <= 4 * 2.0**-24
    half = activated(y.astype(np.float16), Activation("silu"))
    assert (half == silu(y.astype(np.float16).astype(np.float32)).astype(np.float16)).all()


def test_numbers_that_are_none_and_zeros() -> None:
    y = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e4, -1e4, -88.5], np.float32)
    with np.errstate(all="ignore"):
        kinds = {kind: Activation.of(kind) for kind in ("relu", "leaky_relu", "silu")}
        found = {kind: activated(y, how) for kind, how in kinds.items() if how}
    np.testing.assert_array_equal(found["relu"], [np.nan, np.inf, 0, 0, 0, 1e4, 0, 0])
    assert not np.signbit(found["relu"]).any()
    expected = np.array([np.nan, np.inf, -np.inf, 0, 0, 1e4, -100, -0.885], np.float32)
    np.testing.assert_array_equal(found["leaky_relu"], expected)
    np.testing.assert_array_equal(found["silu"][:-1], [np.nan, np.inf, np.nan, 0, 0, 1e4, 0])


def test_other_numbers() -> None:
    x, w = np.arange(-8, 8).reshape(1, 4, 4, 1), np.ones((1, 3, 3, 1), int)
    how: dict[str, Any] = {"precision": "exact"}
    y = winolab.conv_forward(x, w, **how)
    bias = np.array([1], y.dtype)
    found = winolab.conv_forward(x, w, bias=bias, activation="relu", **how)
    assert (found == np.maximum(y + 1, 0)).all()
    with pytest.raises(ValueError, match=r"silu of \w+ is not defined: ask for a floating-point"):
        winolab.conv_forward(x, w, activation="silu", **how)
    z = x * (1 + 1j)
    both = winolab.conv_forward(z, w * 1j, bias=np.array([2j]))
    assert (both == winolab.conv_forward(z, w * 1j) + 2j).all()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"bias": np.ones(6, "f")}, ValueError, r"bias has shape \(6,\); expected \(7,\)"),
        ({"bias": np.ones((7, 1), "f")}, ValueError, r"bias has shape \(7, 1\)"),
        ({"bias": np.ones(7)}, TypeError, "bias has dtype float64 and y float32; convert it"),
        ({"residual": np.ones((2, 5, 6, 1), "f")}, ValueError, "residual has shape .*; expected y"),
        ({"residual": np.ones((2, 5, 6, 7), "d")}, TypeError, "residual has dtype float64"),
        ({"activation": "gelu"}, ValueError, "activation 'gelu'; expected one of relu"),
        ({"activation": "rellu"}, ValueError, "did you mean 'relu'"),
        ({"activation": "relu:2"}, ValueError, "relu has no slope"),
        ({"activation": "leaky_relu:x"}, ValueError, "expected a number"),
        ({"activation": "leaky_relu:nan"}, ValueError, "expected a number"),
        ({"activation": 3}, TypeError, "activation is 3; expected a name"),
    ],
)
def test_what_does_not_fit_is_refused(given, error, message: str) -> None:
    x, w, *_ = arrays(np.float32)
    with pytest.raises(error, match=message):
        winolab.conv_forward(x, w, padding=1, **given)


def test_activations_are_read_as_they_are_written() -> None:
    for text in ("relu", "silu", "leaky_relu:0.2"):
        assert str(Activation.of(text)) == text
    assert Activation.of("leaky_relu") == Activation("leaky_relu", 0.01)
