"""Bounds for all data: above those of any, and no error beyond them."""

from __future__ import annotations

import numpy as np
import pytest

from winolab.algorithm import Problem
from winolab.problem import shapes
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.proven import proven
from winolab.ref.tolerance.normwise import normwise, products


@pytest.mark.parametrize("precision", ["fp32", "fp16", "fp32_split", "mp:40"])
@pytest.mark.parametrize(
    ("text", "direction"),
    [("direct", "forward"), ("winograd:4x4:3x3", "forward"), ("gamma:8:6:3", "backward_data"),
     ("dwm:3:2", "forward"), ("winograd:3x3:2x2", "backward_filter"), ("fft:8", "forward")],
)  # fmt: skip
def test_the_bound_of_all_data_is_above_those_of_any(text, direction, precision) -> None:
    rng, run = np.random.default_rng(1), arithmetic(precision)
    problem = Problem.of((2, 11, 12, 6), (4, 3, 3, 6), padding=1)
    count = products(problem, direction)
    try:
        limit = normwise(problem, text, run, direction=direction, peaks=(2.0, 0.5))
    except ValueError:
        assert (text, precision) == ("fft:8", "mp:40")
        return
    for signs in (1, 2):
        a, b = (rng.integers(-8, 9, s) / 4 for s in shapes(direction, problem)[:2])
        a, b = (a, b / 4) if signs > 1 else (np.full(a.shape, 2.0), np.full(b.shape, 0.5))
        of_data = proven(a, b, problem, text, run, direction=direction)
        assert of_data.max() <= limit * count * 2.0 * 0.5 * (1 + 1e-9)
        assert limit == np.inf or limit < 0.1
