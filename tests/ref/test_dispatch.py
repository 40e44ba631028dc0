"""What the reference refuses and what it accepts, beside the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import winolab

X, W, DY = np.ones((2, 5, 6, 4)), np.ones((4, 3, 3, 4)), np.ones((2, 3, 4, 4))


def call(direction: str, x: np.ndarray, w: np.ndarray, dy: np.ndarray, **how: Any) -> np.ndarray:
    if direction == "forward":
        return winolab.conv_forward(x, w, **how)
    if direction == "backward_data":
        return winolab.conv_backward_data(dy, w, x.shape, **how)
    return winolab.conv_backward_filter(x, dy, w.shape, **how)


@pytest.mark.parametrize(
    ("wrong", "direction", "message"),
    [
        ({"algorithm": "winograd:4:3"}, "forward", "has 1 dimension; the problem has 2"),
        ({"algorithm": "winograd:4:3"}, "backward_data", "has 1 dimension; the problem has 2"),
        ({"algorithm": "dwm:3x3x3:2"}, "forward", "dimensions"),
        ({"algorithm": "fft:2:3"}, "forward", "a transform of 2 is shorter"),
        ({"algorithm": "fft:16:3", "precision": "exact"}, "forward", "cannot run in exact"),
        ({"algorithm": "gamma:8:6:3"}, "backward_filter", "serves forward and backward data"),
        ({"algorithm": "winrs"}, "forward", "compute filter gradients only"),
        ({"algorithm": "omega:16:8:9"}, "backward_filter", "9|16"),
        ({"algorithm": "winograd:2x2:3x3@0,0,1"}, "forward", "repeated"),
    ],
)
@pytest.mark.parametrize("empty", ["in_channels", "out_channels", "batch", "input", None])
def test_empty_calls_are_refused_as_others(wrong, direction, message, empty) -> None:
    """Issue 42, item 22: a zero-channel call skipped all checks."""
    x, w, dy = X, W, DY
    if empty == "in_channels":
        x, w = x[..., :0], w[..., :0]
    elif empty == "out_channels":
        w, dy = w[:0], dy[..., :0]
    elif empty == "batch":
        x, dy = x[:0], dy[:0]
    elif empty == "input":
        x, dy = x[:, :0], dy[:, :0]
    with pytest.raises(ValueError, match=message):
        call(direction, x, w, dy, **wrong)
    result = call(direction, x, w, dy)
    assert (
        result.shape == {"forward": dy, "backward_data": x, "backward_filter": w}[direction].shape
    )
    assert empty is None or not result.any()


@pytest.mark.parametrize("algorithm", ["omega:8:5:4", "omega:16:5:12", "winrs", "dwm:5:4"])
def test_a_gradient_without_outputs_is_zero_whatever_the_tile(algorithm) -> None:
    x, dy = np.zeros((1, 0, 1)), np.zeros((1, 0, 1))
    dw = winolab.conv_backward_filter(x, dy, (1, 5, 1), padding=((1, 4),), algorithm=algorithm)
    assert dw.shape == (1, 5, 1)
    assert not dw.any()


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("x", None, "x is None; expected an array"),
        ("x", "x.npy", "x is of type str; expected an array"),
        ("w", None, "w is None; expected an array"),
        ("w", b"w", "w is of type bytes; expected an array"),
        ("w", {}, "w is of type dict; expected an array"),
        ("x", 3.0, "x is of type float; expected an array"),
        ("x", [[1.0, 2.0], [3.0]], "x is a list of different lengths; expected an array"),
        ("dy", None, "dy is None; expected an array"),
    ],
)
def test_what_is_no_array_is_named(name, wrong, message) -> None:
    given: dict[str, Any] = {"x": X, "w": W, "dy": DY, name: wrong}
    direction = "backward_filter" if name == "dy" else "forward"
    with pytest.raises(TypeError, match=message):
        call(direction, **given)
    if name == "w":
        with pytest.raises(TypeError, match=message):
            winolab.prepare_filter(given["w"], X.shape)


def test_a_shape_is_no_text() -> None:
    for shape in ("2564", 5, None):
        wrong: Any = shape
        with pytest.raises(TypeError, match="expected all sizes"):
            winolab.prepare_filter(W, wrong)
        with pytest.raises(TypeError, match="expected all sizes"):
            winolab.conv_backward_filter(X, DY, wrong)


@pytest.mark.parametrize("name", ["stride", "dilation"])
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
@pytest.mark.parametrize("algorithm", ["direct", "dwm:3:2"])
def test_steps_of_any_64_bits_are_served_and_larger_ones_refused(
    name, direction, algorithm
) -> None:
    """Issue 42, item 22: 2**70 was an OverflowError."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-9, 10, s).astype(float) for s in (X.shape, W.shape))
    w = w[:, :1, :1] if name == "dilation" else w
    dy = rng.integers(-9, 10, (2, 5, 6, 4) if name == "dilation" else (2, 1, 1, 4)).astype(float)
    same = {} if name == "dilation" else {"stride": 6}
    how: dict[str, Any] = {"algorithm": algorithm}
    found = call(direction, x, w, dy, **how, **{name: 2**62})
    assert (found == call(direction, x, w, dy, **how, **same)).all()
    with pytest.raises(ValueError, match=f"{name} in spatial dimension 0 has 71 bits"):
        call(direction, x, w, dy, **{name: 2**70})


def test_targets_whose_elements_share_memory_are_refused() -> None:
    """Issue 42, item 22: a broadcast out was accepted, and the last value written won."""
    y = winolab.conv_forward(X, W)
    strided, memory = np.lib.stride_tricks.as_strided, np.zeros(1000)
    for strides in ((0, 128, 32, 8), (384, 128, 24, 8), (8, 8, 8, 8), (384, 128, 32, 4)):
        with pytest.raises(ValueError, match="out has elements that share memory"):
            winolab.conv_forward(X, W, out=strided(memory, y.shape, strides))
    for out in (np.broadcast_to(np.zeros(4), y.shape), np.zeros((1, 3, 4, 4)).repeat(2, 0)[:1]):
        with pytest.raises(ValueError, match=r"out has (elements that share|shape)"):
            winolab.conv_forward(X, W, out=out)
    frozen = np.zeros(y.shape)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        winolab.conv_forward(X, W, out=frozen)
    for out in (  # axes in another order, backwards, apart, interleaved
        np.zeros(y.shape[::-1]).T,
        np.zeros(y.shape)[:, ::-1, :, ::-1],
        np.zeros((2, 6, 4, 8))[:, ::2, :, ::2],
        strided(memory, y.shape, (8, 16, 48, 192)),
        strided(memory, y.shape, (24, 16, 96, 384)),
    ):
        assert (winolab.conv_forward(X, W, out=out) == y).all()


def test_empty_calls_are_not_refused_for_being_small() -> None:
    """What is tried in their place has outputs enough for every tile."""
    x, dy = np.ones((3, 0, 5)), np.ones((3, 0, 1))
    for algorithm in ("omega:8:3:6", "winrs", "winograd:3:6", "dwm:3:6", "fft:16"):
        dw = winolab.conv_backward_filter(x, dy, (1, 3, 5), padding="same", algorithm=algorithm)
        assert dw.shape == (1, 3, 5)
        assert not dw.any()
    y = winolab.conv_forward(np.ones((3, 0, 5)), np.ones((1, 3, 5)), stride=2**62)
    assert y.shape == (3, 0, 1)


@pytest.mark.parametrize("algorithm", ["direct", "dwm:3:2"])
@pytest.mark.parametrize("direction", ["forward", "backward_filter"])
def test_every_element_is_made_exact_whether_a_window_reads_it_or_not(algorithm, direction) -> None:
    x = X.copy()
    x[0, 3, 3, 0] = np.nan  # between the windows of one tap
    w, dy = W[:, :1, :1], np.ones((2, 2, 2, 4))
    how: dict[str, Any] = {"stride": (4, 5), "algorithm": algorithm}
    assert np.isfinite(call(direction, x, w, dy, **how)).all()
    with pytest.raises(ValueError, match="NaN or infinity"):
        call(direction, x, w, dy, precision="exact", **how)


def test_a_gradient_of_no_images_is_zero_whatever_the_constants() -> None:
    """Issue 50, section 7: problem 82525 of seed 100; 2¹⁶ of the output transform is infinite in
    FP16, and 0·∞ no number."""
    how: dict[str, Any] = {"algorithm": "omega:16:9:8", "precision": "bf16,transform=fp16"}
    x, dy = np.ones((1, 28, 3), "f4"), np.ones((1, 28, 2), "f4")
    some = winolab.conv_backward_filter(
        np.random.default_rng(0).random(x.shape, "f4"), dy, (2, 9, 3), padding=4, **how
    )
    assert np.isinf(some).any()
    none = winolab.conv_backward_filter(x[:0], dy[:0], (2, 9, 3), padding=4, **how)
    assert (none == 0).all()
