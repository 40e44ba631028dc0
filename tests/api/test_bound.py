"""Bounds from Python: no error exceeds them, of arrays and of all data of their magnitudes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import winolab
from winolab.ref.error.proven import proven

X, W = (2, 14, 14, 12), (6, 3, 3, 12)
PROBLEM = winolab.Problem.of(X, W, padding=1)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("algorithm", ["direct", "winograd:4x4:3x3", "gamma:8:6:3", "dwm:3:2"])
def test_no_error_exceeds_it(algorithm: str, precision: str) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, s).astype("f2").astype("f4") for s in (X, W))
    x[0], w[0] = 1.0, -1.0  # for which the bound is made
    how = {"padding": 1, "algorithm": algorithm, "precision": precision}
    y = winolab.conv_forward(x, w, out_dtype="f4", **how)
    error = np.abs(y - winolab.conv_forward(x.astype(float), w.astype(float), padding=1))
    named, own = winolab.bound(X, W, **how), winolab.bound(X, W, data=(x, w), **how)
    assert own.bounds is not None
    assert (own.bounds == proven(x, w, PROBLEM, algorithm, precision)).all()
    assert (error <= own.bounds).all()
    assert own.absolute == own.bounds.max() <= named.absolute * (1 + 1e-4)
    assert error.max() <= named.relative * 9 * 12
    assert own.relative_rms is not None
    assert named.relative_rms is None
    exact = winolab.conv_forward(x.astype(float), w.astype(float), padding=1)
    assert np.linalg.norm(error) <= own.relative_rms * np.linalg.norm(exact)
    told = json.loads(json.dumps(own.to_dict()))
    assert (told["absolute"], told["peaks"]) == (own.absolute, [1.0, 1.0])
    assert f"no result errs more than {own.absolute:.3g}" in str(own)


def test_data_without_a_largest_number_are_surely_below_one() -> None:
    found = winolab.bound(X, W, padding=1, data="normal")
    draws = [np.random.default_rng(i).standard_normal(X) for i in range(50)]
    assert max(map(np.max, map(np.abs, draws))) < found.peaks[0] < 7
    scaled = winolab.bound(X, W, padding=1, data=winolab.Moments(0, 4.0))
    assert scaled.peaks[0] == pytest.approx(2 * found.peaks[0])
    assert scaled.absolute == pytest.approx(4 * found.absolute, rel=1e-3)


def test_where_nothing_is_proven_it_is_infinite() -> None:
    asked: list[dict[str, Any]] = [
        {"algorithm": "winrs", "direction": "backward_filter"},
        {"algorithm": "fft:12"},
        {"algorithm": "winograd:4x4:3x3", "precision": "fp16", "data": winolab.Moments(0, 1e9)},
    ]
    for how in asked:
        found = winolab.bound(X, W, padding=1, **how)
        assert found.absolute == math.inf
        assert "nothing is proven" in str(found)
    with pytest.raises(ValueError, match="of arrays; give data as the two operands"):
        winolab.bound(X, W).plot()
