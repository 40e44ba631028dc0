"""The largest of many errors: below what the model says, and not far below."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from winolab.algorithm import Problem, parse_algorithm
from winolab.ref.algorithms import convolution
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.expected import expected
from winolab.ref.error.moments import Moments
from winolab.ref.kinds.registry import ENGINES
from winolab.ref.tolerance.cheapest import sure
from winolab.ref.tolerance.largest import above, spread

DATA = {  # and the kurtosis
    "normal": (lambda rng, shape: rng.standard_normal(shape), 3.0),
    "u11": (lambda rng, shape: rng.uniform(-1, 1, shape), 1.8),
    "u12": (lambda rng, shape: rng.uniform(1, 2, shape), 1.8),
}


ALGORITHMS = "direct", "winograd:2x2:3x3", "winograd:4x4:3x3", "gamma:8:6:3", "dwm:3:4"


@pytest.mark.parametrize(
    ("text", "precision"),
    [  # the FFT transforms in FP32
        ("fft:16", "fp32"),
        *product(ALGORITHMS, ["fp32", "fp16", "fp16,transform=fp16"]),
    ],
)
@pytest.mark.parametrize("name", [*DATA])
@pytest.mark.parametrize("channels", [1, 24])
def test_no_error_exceeds_it_and_some_come_near(text, channels, name, precision) -> None:
    draw, kurtosis = DATA[name]
    problem = Problem.of((2, 24, 24, channels), (8, 3, 3, channels), padding=1)
    algorithm, run = parse_algorithm(text), arithmetic(precision)
    rng = np.random.default_rng(3)
    x, w = (draw(rng, s).astype("f2").astype("f4") for s in (problem.x_shape, problem.w_shape))
    y = ENGINES[algorithm.kind].forward(x, w, problem, algorithm, run)
    exact = convolution.forward(x.astype(float), w.astype(float), problem)
    data = Moments.of(x), Moments.of(w)
    found = expected(*data, problem, algorithm, run)
    how = (problem, algorithm, run, "forward", data, (kurtosis, kurtosis))
    variance = spread(*how, found.shares)
    assert 0 <= spread(*how, found.shares, energy=False) <= variance
    rms = sure(algorithm, run) * found.relative_rms * np.sqrt((exact**2).mean())
    limit = rms * np.sqrt(found.uneven) * above(exact.size, 0.999, variance)
    assert np.abs(y - exact).max() <= limit
    assert name == "u12" or np.abs(y - exact).max() >= 0.1 * limit


def test_without_spread_errors_are_normal() -> None:
    assert above(1, 0.999, 0.0) == pytest.approx(norm.isf(5e-4))
    assert above(1000, 0.999, 1e-5) == pytest.approx(above(1000, 0.999, 0.0), rel=1e-2)
    asked = ((10, 0.9, 0.1), (1000, 0.9, 0.1), (1000, 0.999, 0.1), (1000, 0.999, 1.0))
    values = [above(*how) for how in asked]
    assert values == sorted(values)
    # of exponentially distributed squares, which gamma of variance 1 are: Laplace's distribution
    assert above(1, 0.9, 1.0) == pytest.approx(np.log(10) / np.sqrt(2), rel=1e-3)
