"""prepare_filter of NumPy arrays refuses what every call with it would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from winolab import conv_backward_data, conv_forward, prepare_filter
from winolab.ref.arithmetic.simulated import arithmetic

SHAPE, FILTER = (2, 9, 8, 4), (6, 3, 3, 4)
W = np.random.default_rng(0).uniform(-1, 1, FILTER).astype("f")


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"algorithm": "gamma:8:3:6"}, ValueError, "serves 6 taps or more .* the filter has 3"),
        ({"algorithm": "winograd:2:3"}, ValueError, "has 1 dimension; the problem has 2"),
        ({"algorithm": "omega:8:3:6"}, ValueError, "compute filter gradients only"),
        ({"algorithm": "fft:16", "precision": "exact"}, ValueError, "cannot run in exact"),
        ({"algorithm": "gamma:8:6:3", "stride": 2}, ValueError, "needs stride 1"),
        ({"algorithm": "dwm;error=1e-30"}, ValueError, "1e-30"),
        ({"precision": "foo"}, ValueError, "unknown precision 'foo'"),
        ({"out_dtype": np.int16}, TypeError, "out_dtype is int16"),
        ({"layout": "CHWN"}, ValueError, "CHWN is not supported"),
    ],
)
def test_what_no_call_would_take_is_refused(direction, wrong, error, message) -> None:
    with pytest.raises(error, match=message):
        prepare_filter(W, SHAPE, direction=direction, **wrong)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, object])
@pytest.mark.parametrize("channel", [0, 5])
def test_exact_filters_are_finite_in_every_channel(channel, dtype) -> None:
    w = W.astype(dtype)
    w[channel, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="exact arithmetic on NaN or infinity"):
        prepare_filter(w, SHAPE, precision="exact")
    assert prepare_filter(w, SHAPE, precision="mp:50").shape == FILTER


def test_a_dtype_without_a_precision_is_refused() -> None:
    with pytest.raises(TypeError, match="float128"):
        prepare_filter(W.astype(np.longdouble), SHAPE)


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize(
    "how",
    [
        {"groups": 2},
        {"algorithm": "gamma:8:6:3", "scale": "6:9", "precision": "fp32_split"},
        {"algorithm": "winograd:4x4:3x3", "precision": "fp16"},
        {"algorithm": "dwm;error=1e-6"},
        {"stride": 2, "precision": "exact"},
    ],
    ids=str,
)
def test_what_calls_take_is_prepared(layout, how: dict[str, Any]) -> None:
    w = W[..., :2] if "groups" in how else W
    w = np.round(8 * w).astype(int) if how.get("precision") == "exact" else w
    shape = SHAPE
    if layout == "channels_first":
        shape, w = (2, 4, 9, 8), np.moveaxis(w, -1, 1)
    x, how = np.ones(shape, w.dtype), {"layout": layout, "padding": 1, **how}
    y = conv_forward(x, w, **how)
    assert (conv_forward(x, prepare_filter(w, shape, **how), **how) == y).all()
    prepared = prepare_filter(w, shape, direction="backward_data", **how)
    dx = conv_backward_data(y, w, shape, **how)
    assert (conv_backward_data(y, prepared, shape, **how) == dx).all()


@pytest.mark.parametrize(
    ("prepared", "called"),
    [
        ({}, {"precision": "fp32"}),
        ({"precision": "fp32"}, {}),
        ({}, {"algorithm": "direct"}),
        ({"algorithm": "direct"}, {"precision": arithmetic("fp32")}),
    ],
)
def test_what_none_stands_for_may_be_named(prepared: dict[str, Any], called) -> None:
    x = np.ones(SHAPE, "f")
    y = conv_forward(x, prepare_filter(W, SHAPE, **prepared), **called)
    assert (y == conv_forward(x, W)).all()


@pytest.mark.parametrize(
    ("called", "message"),
    [
        ({"precision": "fp64"}, "prepared with precision fp32, not fp64"),
        ({"precision": "foo"}, "unknown precision 'foo'"),
        ({"algorithm": "gamma:8:6:3"}, "prepared with algorithm direct, not gamma:8:6:3"),
    ],
)
def test_another_precision_or_algorithm_is_refused_by_name(called, message) -> None:
    with pytest.raises(ValueError, match=message):
        conv_forward(np.ones(SHAPE, "f"), prepare_filter(W, SHAPE), **called)


@pytest.mark.parametrize("dtype", ["f4", "c8", object])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_a_prepared_filter_is_that_of_its_time(dtype, order, direction) -> None:
    """As a GPU's: it was a view of w."""
    convolve = {"forward": conv_forward, "backward_data": conv_backward_data}[direction]
    w, x = np.ones((1, 3, 3, 1), dtype, order), np.ones((1, 4, 4, 1), dtype)
    how: dict[str, Any] = {"precision": "fp32_split", "scale": "6:9"} if dtype == "f4" else {}
    how |= {"precision": "exact"} if dtype is object else {}
    arguments = (x[:, :2, :2], x.shape) if direction == "backward_data" else (x,)
    expected = convolve(arguments[0], w, *arguments[1:], **how)
    prepared = prepare_filter(w, x.shape, direction=direction, **how)
    w[...] = 0
    assert prepared.nbytes == w.nbytes
    assert (convolve(arguments[0], prepared, *arguments[1:], **how) == expected).all()
    assert expected.any()
