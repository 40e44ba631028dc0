"""Moduli whose factors are no points: all directions exactly, bounded, predicted and counted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from winolab.algorithm import Problem, Tile, parse_algorithm
from winolab.conv import conv_backward_data, conv_backward_filter, conv_forward
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.cost.count import cost
from winolab.ref.error.bounds import bound
from winolab.ref.error.moments import Moments
from winolab.ref.error.predict import predict

NINE = "0,3/4,-3/4,4/3,-4/3,inf,x^2+1"  # F(6, 3), degree 8
TWELVE = "0,3/4,-3/4,4/3,-4/3,inf,x^2+x+1,x^2-x+1"  # F(6, 5), degree 10


@pytest.mark.parametrize(
    ("text", "taps"),
    [
        (f"gamma:9:6:3@{NINE}", (3, 3)),
        (f"gamma:9:4:5@{NINE};scaling=l1", (2, 5)),
        (f"winograd:6x6:3x3@{NINE}", (3, 3)),
        (f"winograd:6x2:5x3@{TWELVE};scaling=power_of_two", (5, 3)),
        (f"winograd:3x3:6x6@{NINE}", (6, 6)),
        (f"dwm:3:6@{NINE}", (5, 4)),
        ("dwm:4x2:6x2@0,1,inf^2,i;variant=balanced", (7, 3)),
        ("winograd:2x2:3x3@x^2,inf^2", (3, 3)),
    ],
)  # fmt: skip
def test_every_direction_is_exact(text: str, taps: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(-9, 10, (2, 15, 13, 3)), rng.integers(-9, 10, (2, *taps, 3))
    named = {"padding": 1, "precision": "exact"}
    y = conv_forward(x, w, **named)
    assert parse_algorithm(str(parse_algorithm(text))) == parse_algorithm(text)
    assert (conv_forward(x, w, algorithm=text, **named) == y).all()
    dx = conv_backward_data(y, w, x.shape, **named)
    assert (conv_backward_data(y, w, x.shape, algorithm=text, **named) == dx).all()
    if not text.startswith("gamma"):
        dw = conv_backward_filter(x, y, w.shape, **named)
        assert (conv_backward_filter(x, y, w.shape, algorithm=text, **named) == dw).all()


@pytest.mark.parametrize("text", [f"gamma:9:6:3@{NINE}", f"winograd:6x6:3x3@{NINE}"])
@pytest.mark.parametrize("precision", ["fp32", "fp16,accumulate=fp32,transform=fp32"])
def test_errors_are_bounded_and_predicted(text: str, precision: str) -> None:
    rng = np.random.default_rng(1)
    problem = Problem.of((1, 14, 26, 64), (32, 3, 3, 64), padding=1)
    x, w = (rng.standard_normal(s).astype("float16").astype("float32")
            for s in (problem.x_shape, problem.w_shape))  # fmt: skip
    algorithm, run = parse_algorithm(text), arithmetic(precision)
    exact = convolution.forward(x, w, problem)
    error = np.abs(winograd.forward(x, w, problem, algorithm, run) - exact)
    assert (error <= bound(x, w, problem, algorithm, run)).all()
    rms = float(np.sqrt((error**2).mean() / (exact**2).mean()))
    expected = predict(Moments.of(x), Moments.of(w), problem, algorithm, run).relative_rms
    assert 0.9 < expected / rms < 1.1  # of 11,648 outputs


def test_products_are_counted_by_states() -> None:
    """Issue 48: F(6×6, 3×3) in 81 states saves 4, as F(4×4, 3×3) does in 36."""
    problem = Problem.of((1, 24, 24, 8), (8, 3, 3, 8), padding=1)
    algorithm = parse_algorithm(f"winograd:6x6:3x3@{NINE}")
    assert algorithm.tiles == (Tile(6, 3, 9),) * 2
    assert problem.macs / cost(problem, algorithm).products == 4.0
    states = cost(problem, algorithm).transformed
    assert states[0] == 81 * 64
    assert math.prod(t.inputs for t in algorithm.tiles) == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"gamma:8:6:3@{NINE}", r"gamma\(8, 6, 3\): alpha must be what its points have = 9"),
        (f"gamma:9:6:3@{TWELVE}", r"gamma\(9, 6, 3\): alpha must be n \+ r - 1 = 8"),
        (f"winograd:6x6:3x3@{TWELVE}", "the factors have degree 10 together; expected "
         r"n \+ r - 1 = 8 for F\(6,3\): leave out 2"),
        (f"winograd:6x6:4x4@{NINE}", r"expected n \+ r - 1 = 9 for F\(6,4\): add 1"),
        ("winograd:6x6:3x3@0,1,-1,x^2+1", "add 3, by points, infinity, or polynomials$"),
        (f"winrs@{NINE}", "has 9 states; a kernel of winrs in fp32 has 4 or 8 or 16"),
    ],
)  # fmt: skip
def test_degrees_add_up(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conv_backward_filter(
            np.ones((1, 9, 9, 1)), np.ones((1, 7, 7, 1)), (1, 3, 3, 1), algorithm=text
        )
