"""Filters prepared in 16 bits, and the results that are wanted of them, on the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import winolab
from tests.gpu.support.pretended import Array

# Sums of 9 · 16 products of 100 · 100: 1,440,000 is beyond float16.
SHAPE, FILTER, SUM = (1, 5, 6, 16), (16, 3, 3, 16), 1_440_000.0
STEP = 2**-8  # more than the roundings of a transformed filter to 11 bits
X, W = (np.full(shape, 100, np.float16) for shape in (SHAPE, FILTER))


def inner(y: Array) -> np.ndarray:
    return y.values[:, 1:-1, 1:-1].astype(float)


@pytest.mark.parametrize("wide", ["float32", "bfloat16"])
def test_a_result_wider_than_the_prepared_kernel_writes_is_refused(library, wide) -> None:
    prepared = winolab.prepare_filter(Array(W), SHAPE, padding=1)
    message = f"writes float16, which does not hold what {wide} does: prepare it with out_dtype"
    given = Array(np.empty(SHAPE, getattr(ml_dtypes, wide, wide)))
    for out, dtype in ((None, wide), (given, None)):
        with pytest.raises(ValueError, match=f"{message} float32"):
            winolab.conv_forward(Array(X), prepared, padding=1, out=out, out_dtype=dtype)
    assert np.isposinf(inner(winolab.conv_forward(Array(X), prepared, padding=1))).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_filter_prepared_for_float32_serves_every_dtype(library, dtype) -> None:
    prepared = winolab.prepare_filter(Array(W), SHAPE, padding=1, out_dtype="float32")
    scale = 100 if dtype == "float16" else 1
    y = winolab.conv_forward(Array(X / scale), prepared, padding=1, out_dtype=dtype)
    assert y.dtype.name == dtype
    assert (np.abs(inner(y) - SUM / scale) <= STEP * SUM / scale).all()


def test_what_none_stands_for_may_be_named(library) -> None:
    how: dict[str, Any] = {"padding": 1}
    x = Array(X / 100)
    named: dict[str, Any] = {"precision": "fp16"}
    for prepared, called in (({}, named), (named, {})):
        w = winolab.prepare_filter(Array(W), SHAPE, **how, **prepared)
        winolab.conv_forward(x, w, **how, **called)
    w = winolab.prepare_filter(Array(W), SHAPE, **how)
    with pytest.raises(ValueError, match="fp32 takes float32 arrays; w has dtype float16"):
        winolab.conv_forward(x, w, **how, precision="fp32")
    with pytest.raises(ValueError, match="with algorithm of the planner's choice, not direct"):
        winolab.conv_forward(x, w, **how, algorithm="direct")
