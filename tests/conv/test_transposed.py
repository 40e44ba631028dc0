"""Transposed convolutions: backward data by the size of dy, as PyTorch has them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.problems import integers
from winolab import Problem, conv_backward_data, prepare_filter


def scattered(
    dy: np.ndarray, w: np.ndarray, stride: int, padding: int, dilation: int, longer: int
) -> np.ndarray:
    """One dimension, channels last: every dy adds its filter at its place, and padding is cut."""
    outputs, taps = dy.shape[1], w.shape[1]
    size = (outputs - 1) * stride - 2 * padding + dilation * (taps - 1) + longer + 1
    whole = np.zeros((len(dy), size + 2 * padding + longer, w.shape[-1]))
    for o, t in product(range(outputs), range(taps)):
        whole[:, o * stride + t * dilation] += dy[:, o] @ w[:, t]
    return whole[:, padding : padding + size]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_dx_is_what_pytorch_s_conv_transpose_gives(data) -> None:
    """Every output_padding that PyTorch allows, below the larger of stride and dilation."""
    draw = data.draw
    stride, dilation, taps, outputs = (draw(st.integers(1, n)) for n in (4, 4, 3, 5))
    span = (outputs - 1) * stride + dilation * (taps - 1) + 1
    padding = draw(st.integers(0, min(3, (span - 1) // 2)))
    longer = draw(st.integers(0, max(stride, dilation) - 1))
    dy, w = integers((2, outputs, 3), 1).astype(float), integers((3, taps, 2), 2).astype(float)
    expected = scattered(dy, w, stride, padding, dilation, longer)
    how: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    for algorithm, precision in product(("direct", "dwm:2:2"), ("fp64", "exact")):
        how |= {"algorithm": algorithm, "precision": precision, "out_dtype": float}
        dx = conv_backward_data(dy, w, output_padding=longer, **how)
        assert dx.shape == expected.shape
        assert (dx == expected).all()
    assert (conv_backward_data(dy, w, dx.shape, output_padding=[longer], **how) == expected).all()
    if longer < stride:
        assert (conv_backward_data(dy, w, dx.shape, **how) == expected).all()


def test_shapes_are_those_of_pytorch() -> None:
    """torch.nn.functional.conv_transpose2d, shapes as PyTorch 2 gives them."""
    cases: list[tuple[dict[str, Any], tuple[int, int]]] = [
        ({"stride": 2, "padding": 1, "output_padding": 1}, (10, 14)),
        ({"stride": (2, 3), "padding": 1, "output_padding": (0, 2)}, (9, 21)),
        ({"stride": 1, "dilation": 2, "output_padding": 1}, (10, 12)),
        ({}, (7, 9)),
        ({"padding": "same"}, (5, 7)),
        ({"padding": "valid", "stride": 2}, (11, 15)),
    ]
    for how, size in cases:
        dy, w = np.ones((2, 6, 5, 7)), np.ones((6, 2, 3, 3))
        dx = conv_backward_data(dy, w, groups=3, layout="channels_first", **how)
        assert dx.shape == (2, 6, *size)


def test_a_prepared_filter_serves_what_its_input_says() -> None:
    rng = np.random.default_rng(0)
    dy, w = rng.standard_normal((1, 4, 4, 3)), rng.standard_normal((3, 3, 3, 2))
    how: dict[str, Any] = {"stride": 2, "padding": 1}
    prepared = prepare_filter(w, (1, 8, 8, 2), direction="backward_data", **how)
    dx = conv_backward_data(dy, prepared, output_padding=1, **how)
    assert (dx == conv_backward_data(dy, w, output_padding=1, **how)).all()
    with pytest.raises(ValueError, match="the filter is prepared for"):
        conv_backward_data(dy, prepared, **how)


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"output_padding": 1}, ValueError, "is 1; expected less than the stride 1 or the dilat"),
        ({"output_padding": 3, "stride": 3, "dilation": 2}, ValueError, "the stride 3"),
        ({"output_padding": -1, "stride": 2}, ValueError, "is -1; expected at least 0"),
        ({"output_padding": 0.0}, TypeError, "output_padding in .* is 0.0; expected an integer"),
        ({"output_padding": (1, 1, 1), "stride": 2}, ValueError, "output_padding has 3 values"),
        ({"padding": "same", "stride": 2}, ValueError, "with strides needs input_shape"),
        ({"padding": 9}, ValueError, "leaves nothing of dx"),
        (
            {"output_padding": 1, "stride": 2, "input_shape": (1, 9, 9, 2)},
            ValueError,
            r"input_shape is \(1, 9, 9, 2\) and output_padding 1 gives \(1, 10, 10, 2\)",
        ),
    ],
)
def test_what_no_transposed_convolution_has_is_refused(how, error, message) -> None:
    dy, w = np.ones((1, 4, 4, 3)), np.ones((3, 3, 3, 2))
    for _ in range(2):
        with pytest.raises(error, match=message):
            conv_backward_data(dy, w, **how)
        conv_backward_data(dy, w, output_padding=0)
    with pytest.raises(ValueError, match="dy has 3 dimensions and w 4"):
        conv_backward_data(dy[0], w)


def test_an_empty_dy_has_an_empty_dx() -> None:
    assert conv_backward_data(np.ones((0, 4, 4, 3)), np.ones((3, 3, 3, 2))).shape == (0, 6, 6, 2)
    assert Problem.transposed((1, 0, 3), (3, 3, 2)).input == (0,)
