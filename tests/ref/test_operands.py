"""What a call on NumPy arrays asks for beside the problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from winolab import conv_backward_data, conv_backward_filter, conv_forward, prepare_filter

X, W, DY = np.ones((1, 6, 6, 2)), np.ones((4, 3, 3, 2)), np.ones((1, 4, 4, 4))
CALLS = {
    "forward": lambda **how: conv_forward(X, W, **how),
    "backward_data": lambda **how: conv_backward_data(DY, W, X.shape, **how),
    "backward_filter": lambda **how: conv_backward_filter(X, DY, W.shape, **how),
}


@pytest.mark.parametrize("direction", CALLS)
def test_what_only_kernels_heed_is_checked_all_the_same(direction: str) -> None:
    call = CALLS[direction]
    expected = call()
    for on_range in ("fallback", "raise"):
        for deterministic in (True, False, np.True_):
            found = call(on_range=on_range, deterministic=deterministic)
            assert (found == expected).all()
    with pytest.raises(ValueError, match="on_range 'ignore'; expected one of fallback, raise"):
        call(on_range="ignore")
    wrong: Any
    for wrong in ("no", 1, None):
        with pytest.raises(TypeError, match=f"deterministic is {wrong!r}; expected True or False"):
            call(deterministic=wrong)


@pytest.mark.parametrize("algorithm", ["direct", "winograd:3x3:2x2"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_dw_that_overflows_float16_is_reported(algorithm: str, dtype: type) -> None:
    x, dy = (v.astype(dtype) for v in (X, DY))
    how: dict[str, Any] = {"algorithm": algorithm, "out_dtype": np.float16}
    assert (conv_backward_filter(x, dy, W.shape, on_range="raise", **how) == 16).all()
    x *= 5000
    assert np.isinf(conv_backward_filter(x, dy, W.shape, **how)).all()
    how["out"] = np.full(W.shape, 7, np.float16)
    with pytest.raises(ValueError, match=r"dw reaches 80000, .*out_dtype float32 or bfloat16"):
        conv_backward_filter(x, dy, W.shape, on_range="raise", **how)
    assert (how["out"] == 7).all()


@pytest.mark.parametrize("algorithm", ["direct", "winrs", "winrs;segments=4", "winograd:3x3:2x2"])
@pytest.mark.parametrize(
    ("precision", "size"),
    [
        ("fp16,accumulate=fp16,accumulation=sequential", 300.0),
        ("fp16,transform=fp16,accumulate=fp16,accumulation=kahan", 300.0),
        ("fp32", 1e19),
        ("fp32,accumulation=kahan", 1e19),
        ("fp64", 1e160),
    ],
)
def test_infinite_sums_are_infinite_and_reported(algorithm: str, precision: str, size: float):
    """Neither NaN, as infinity − infinity in a compensated sum, nor silence."""
    dtype = {300.0: "f2", 1e19: "f4", 1e160: "f8"}[size]
    x, dy = np.full((2, 16, 16, 2), size, dtype), np.full((2, 14, 14, 2), size, dtype)
    how: dict[str, Any] = {"algorithm": algorithm, "precision": precision}
    assert (conv_backward_filter(x, dy, (2, 3, 3, 2), **how) == np.inf).all()
    with pytest.raises(ValueError, match=r"dw's sums are infinite, .* scale x or dy down"):
        conv_backward_filter(x, dy, (2, 3, 3, 2), out_dtype="float16", on_range="raise", **how)


def test_values_that_are_not_finite_are_no_overflow() -> None:
    x = X.astype(np.float16)
    x[0, 0, 0, 0] = np.inf
    dw = conv_backward_filter(x, DY.astype(np.float16), W.shape, on_range="raise")
    assert np.isinf(dw[:, 0, 0, 0]).all()
    assert (dw[:, 1:] == 16).all()


def test_masks_are_refused() -> None:
    masked: Any = np.ma.masked_less(X, 0)
    for name, call in (
        ("x", lambda: conv_forward(masked, W)),
        ("w", lambda: conv_forward(X, np.ma.masked_less(W, 0))),
        ("w", lambda: prepare_filter(np.ma.masked_less(W, 0), X.shape)),
        ("out", lambda: conv_forward(X, W, out=np.ma.masked_less(DY, 0))),
    ):
        with pytest.raises(TypeError, match=f"{name} is a masked array, .*; pass its filled"):
            call()


@pytest.mark.parametrize("precision", ["fp64", "exact"])
@pytest.mark.parametrize("dtype", ["U5", "S5", "M8[s]", "m8[s]"])
def test_results_are_numbers(dtype: str, precision: str) -> None:
    x, w = X.astype(int), W.astype(int)
    for given, wanted in ((np.zeros(DY.shape, dtype), None), (None, dtype)):
        with pytest.raises(TypeError, match=r"out(_dtype is| has dtype) .*; expected numbers"):
            conv_forward(x, w, precision=precision, out=given, out_dtype=wanted)


def test_a_scale_changes_split_products_alone() -> None:
    x, w = (np.random.default_rng(0).uniform(-1, 1, v.shape).astype("f") for v in (X, W))
    assert (conv_forward(x, w, scale="8:-9") == conv_forward(x, w)).all()
    scaled = conv_forward(x, w, scale="8:-9", precision="fp32_split")
    swapped = conv_forward(x.astype(">f4"), w, scale="8:-9", precision="fp32_split")
    assert (swapped == scaled).all()
    split = conv_forward(x, w, precision="fp32_split")
    assert (scaled != split).any()
