"""Errors are relative to the largest numbers of a tile, which predictions of arrays show."""

from __future__ import annotations

import numpy as np
import pytest

import winolab
from winolab.algorithm import Problem, parse_algorithm
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.predict import Moments, predict

FP32 = arithmetic("fp32")


def outlier(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    x = rng.standard_normal(shape)
    x[0, 5, 9, 0] = 1e12
    return x


def sparse(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.random(shape) < 0.05) * np.exp(3 * rng.standard_exponential(shape))


@pytest.mark.parametrize("data", [outlier, sparse])
@pytest.mark.parametrize("text", ["direct", "gamma:8:6:3", "winograd:4x4:3x3"])
def test_predictions_of_arrays_are_componentwise(text, data) -> None:
    """One 1e12 among normal data, 95 % zeros and exponential tails: outputs beside large numbers
    lose 2.8e-5 and 1.8e-4 of their own Σ|x||w| in transformed tiles, none in direct products."""
    rng = np.random.default_rng(0)
    problem, algorithm = Problem.of((1, 14, 20, 16), (16, 3, 3, 16)), parse_algorithm(text)
    x, w = (
        v.astype("f") for v in (data(rng, problem.x_shape), rng.standard_normal(problem.w_shape))
    )
    y = winograd.forward(x, w, problem, algorithm, FP32)
    exact = convolution.forward(x, w, problem)
    own = convolution.forward(np.abs(x), np.abs(w), problem)
    error = np.abs(y - exact)
    found = predict(x, w, problem, algorithm, FP32)
    assert found.errors is not None
    assert found.errors.shape == y.shape
    inside = found.errors > 0
    assert not error[~inside].any()
    assert (error[inside] <= 8 * found.errors[inside]).all()
    ratio = error[inside] / found.errors[inside]
    assert 0.5 <= np.sqrt((ratio**2).mean()) <= 1.5
    lost = (error / np.maximum(own, 1e-300)).max()
    assert lost <= 3e-6 if text == "direct" else lost >= 1e-5
    shown = (found.errors / np.maximum(own, 1e-300)).max()
    assert 0.1 <= lost / shown <= 8


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
@pytest.mark.parametrize("data", ["u11", "u12"])
def test_of_random_arrays_both_predictions_agree(direction, data) -> None:
    rng = np.random.default_rng(0)
    text = "winograd:3x3:2x2" if direction == "backward_filter" else "gamma:8:6:3"
    problem = Problem.of((2, 12, 20, 8), (8, 3, 3, 8))
    shapes = {
        "forward": (problem.x_shape, problem.w_shape),
        "backward_data": (problem.y_shape, problem.w_shape),
        "backward_filter": (problem.x_shape, problem.y_shape),
    }[direction]
    low = {"u11": -1, "u12": 1}[data]
    a, b = (rng.uniform(low, low + (3 - low) / 2, s) for s in shapes)
    how = (problem, parse_algorithm(text), FP32)
    each = predict(a, b, *how, direction=direction)
    whole = predict(Moments.of(a), Moments.of(b), *how, direction=direction)
    assert each.errors is not None
    assert each.errors.shape == getattr(convolution, direction)(a, b, problem).shape
    assert each.relative_rms == pytest.approx(whole.relative_rms, rel=0.25)


def test_an_array_beside_moments_is_refused() -> None:
    problem, x = Problem.of((1, 8, 2), (1, 3, 2)), np.ones((1, 8, 2))
    with pytest.raises(TypeError, match="expected two arrays or two moments"):
        predict(x, Moments(0.0, 1.0), problem, winolab.direct(), FP32)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_spreads_within_a_tile(value) -> None:
    """As conv_forward's docstring has it: of a map of 11 × 11, the other image left alone."""
    x, w = np.ones((2, 11, 11, 1)), np.ones((1, 3, 3, 1))
    x[0, 5, 5] = value
    reached = {"direct": 9, "winograd:2x2:3x3": 9, "gamma:8:6:3": 18, "fft:16": 81}
    for text, count in reached.items():
        y = winolab.conv_forward(x, w, algorithm=text)
        assert np.count_nonzero(~np.isfinite(y[0])) == count
        assert np.isfinite(y[1]).all()
