"""Complex arrays are convolved by real convolutions of their parts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from winolab import (
    conv_backward_data,
    conv_backward_filter,
    conv_forward,
    prepare_filter,
)
from winolab.ref import dispatch

HOW: dict[str, Any] = {"stride": (1, 2), "padding": ((1, 0), (0, 2)), "groups": 2}


def drawn(*shape: int, dtype: Any = np.complex128) -> np.ndarray:
    """Small integers, or complex numbers of such."""
    rng = np.random.default_rng(shape)
    parts = [rng.integers(-4, 5, shape) for _ in range(2)]
    whole = np.dtype(dtype)
    return (parts[0] + 1j * parts[1] if whole.kind == "c" else parts[0]).astype(whole)


def inner(a: np.ndarray, b: np.ndarray) -> complex:
    return complex(np.vdot(a, b))


@pytest.mark.parametrize("algorithm", ["direct", "gamma:4:2:3", "winograd:2x2:2x3", "dwm:3:2"])
@pytest.mark.parametrize("precision", [None, "fp32", "exact", "mp:100"])
def test_forward_is_the_definition(algorithm, precision) -> None:
    """Against the four products of the parts, in exact arithmetic."""
    how = dict(HOW, algorithm=algorithm)
    if algorithm not in ("direct", "dwm:3:2"):
        how["stride"] = 1
    x, w = drawn(2, 6, 7, 4), drawn(6, 2, 3, 2)
    y = conv_forward(x, w, precision=precision, **how)
    assert y.dtype == np.complex128

    def real(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return conv_forward(a, b, precision="exact", out_dtype=float, **how)

    (a, b), (c, d) = ((np.real(v), np.imag(v)) for v in (x, w))
    assert (y.real == real(a, c) - real(b, d)).all()
    assert (y.imag == real(a, d) + real(b, c)).all()


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_gradients_are_adjoint(layout) -> None:
    """⟨dy, x ⋆ w⟩ = ⟨dx, x⟩ = ⟨dw, w⟩, with conjugates, as PyTorch's gradients have them."""
    how = dict(HOW, layout=layout)
    x, w = drawn(2, 6, 7, 4), drawn(6, 2, 3, 2)
    if layout == "channels_first":
        x, w = (np.moveaxis(v, -1, 1) for v in (x, w))
    y = conv_forward(x, w, **how)
    dy = drawn(*y.shape)
    dx = conv_backward_data(dy, w, x.shape, **how)
    dw = conv_backward_filter(x, dy, w.shape, **how)
    assert inner(y, dy) == inner(x, dx) == inner(w, dw)
    assert dx.dtype == dw.dtype == np.complex128


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
@pytest.mark.parametrize("kinds", ["cc", "cf", "fc"])
def test_three_real_convolutions_or_two(direction, kinds, monkeypatch) -> None:
    engine, counted = dispatch._engine, []

    def counting(*arguments):
        counted.append(arguments)
        return engine(*arguments)

    monkeypatch.setattr(dispatch, "_engine", counting)
    x_shape, w_shape, y_shape = (2, 6, 7, 4), (6, 2, 3, 2), (2, 6, 4, 6)
    dtypes = [np.complex128 if kind == "c" else np.float64 for kind in kinds]
    if direction == "forward":
        a, b = drawn(*x_shape, dtype=dtypes[0]), drawn(*w_shape, dtype=dtypes[1])
        found, both = conv_forward(a, b, **HOW), conv_forward(a + 0j, b + 0j, **HOW)
    elif direction == "backward_data":
        a, b = drawn(*y_shape, dtype=dtypes[0]), drawn(*w_shape, dtype=dtypes[1])
        found = conv_backward_data(a, b, x_shape, **HOW)
        both = conv_backward_data(a + 0j, b + 0j, x_shape, **HOW)
    else:
        a, b = drawn(*x_shape, dtype=dtypes[0]), drawn(*y_shape, dtype=dtypes[1])
        found = conv_backward_filter(a, b, w_shape, **HOW)
        both = conv_backward_filter(a + 0j, b + 0j, w_shape, **HOW)
    assert (found == both).all()
    assert len(counted) == (3 if kinds == "cc" else 2) + 3


def test_dtypes_of_complex_results() -> None:
    def result(a: Any, b: Any, **how: Any) -> np.dtype:
        x, w = drawn(1, 5, 2, dtype=a), drawn(3, 3, 2, dtype=b)
        return conv_forward(x, w, **how).dtype

    c64, c128, f32, f64 = np.complex64, np.complex128, np.float32, np.float64
    assert result(c64, c64) == result(f32, c64) == result(c64, f32) == c64
    assert result(c128, c128) == result(c128, f64) == c128
    assert result(c64, f64, precision="fp32") == c128
    assert result(c64, np.float16, precision="fp16") == c64
    assert result(c64, ml_dtypes.bfloat16, precision="bf16") == c64
    assert result(c64, np.int64, precision="exact") == c128
    assert result(c128, c128, out_dtype="complex64") == c64
    out = np.full((1, 3, 3), np.nan, c64)
    x, w = drawn(1, 5, 2), drawn(3, 3, 2)
    assert conv_forward(x, w, out=out) is out
    assert (out == conv_forward(x, w)).all()
    assert (conv_forward(x.astype(">c16"), w) == out).all()
    assert (conv_forward(x.tolist(), w.tolist()) == out).all()


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"out_dtype": float}, TypeError, "the result is complex; ask for complex64 or complex128"),
        ({"out": np.zeros((1, 3, 3))}, TypeError, "the result is complex"),
        ({"out": np.zeros((1, 3, 4), complex)}, ValueError, "out has shape"),
        ({"out": np.broadcast_to(0j, (1, 3, 3))}, ValueError, "out has elements that share memory"),
        ({"out": [0j]}, TypeError, "out is a list; expected a NumPy array"),
        ({"precision": "fp33"}, ValueError, "unknown precision"),
        ({"algorithm": "winrs"}, ValueError, "compute filter gradients only"),
    ],
)
def test_what_no_complex_result_has_is_refused(how, error, message) -> None:
    with pytest.raises(error, match=message):
        conv_forward(drawn(1, 5, 2), drawn(3, 3, 2), **how)


def test_complex_filters_are_prepared_and_empty_ones_are_zero() -> None:
    x, w = drawn(1, 6, 7, 4), drawn(6, 2, 3, 2)
    prepared = prepare_filter(w, x.shape, **HOW)
    assert (conv_forward(x, prepared, **HOW) == conv_forward(x, w, **HOW)).all()
    y = conv_forward(drawn(2, 5, 0), drawn(3, 3, 0))
    assert y.shape == (2, 3, 3)
    assert not y.any()
    with pytest.raises(TypeError, match="arrays of dtypes complex128 and complex64"):
        conv_forward(x.astype(np.complex64), w, **HOW)


def test_exact_sums_are_rounded_once() -> None:
    """(1 + ε + i) (1 + (ε − 1) i) = 2 + ε² i: the sums before the products are exact, too."""
    x = np.array([[[1 + 2**-30 + 1j]]], np.complex128)
    w = np.array([[[1 + (2**-30 - 1) * 1j]]], np.complex128)
    y = conv_forward(x, w, precision="exact")
    assert y.item() == complex(2, 2**-60)
