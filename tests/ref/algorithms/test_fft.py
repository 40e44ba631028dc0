from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import winolab
from tests.support.problems import integers, options, problems
from winolab.algorithm import Problem, parse_algorithm
from winolab.ref.algorithms import fft
from winolab.ref.arithmetic.simulated import PRESETS

# |error| of an FFT of length L is at most about 5u·log2(L)·‖x‖ in RMS (Higham 2002, theorem 24.2);
# three transforms, the products and 4 as the step from RMS to the largest of a few hundred outputs.
ALLOWED = 4 * (3 * 5 * np.log2(4096) + 16)


@settings(max_examples=40, deadline=None)
@given(problems(unit=True), st.integers(0, 6), st.sampled_from([3, 4]), st.integers(0, 99))
def test_every_direction_is_direct_convolution(problem, more, products, seed):
    algorithm = winolab.fft([f + more for f in problem.filter], products=products)
    x = integers(problem.x_shape, seed).astype(float)
    w = integers(problem.w_shape, seed + 1).astype(float)
    dy = integers(problem.y_shape, seed + 2).astype(float)
    for direction, a, b, shape in (
        ("forward", x, w, ()),
        ("backward_data", dy, w, (x.shape,)),
        ("backward_filter", x, dy, (w.shape,)),
    ):
        function = getattr(winolab, f"conv_{direction}")
        expected = function(a, b, *shape, **options(problem))
        found = np.full(expected.shape, np.nan)
        function(a, b, *shape, **options(problem), algorithm=algorithm, out=found)
        bound = ALLOWED * 2.0**-53 * np.linalg.norm(a) * np.linalg.norm(b)
        assert (np.abs(found - expected) <= bound).all()


@pytest.mark.parametrize("products", [3, 4])
def test_large_transforms_and_fp32(products):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 70, 66, 8)).astype(np.float32)
    w = rng.standard_normal((5, 3, 3, 8)).astype(np.float32)
    exact = winolab.conv_forward(x, w, precision="fp64", out_dtype=np.float64, padding=1)
    y = winolab.conv_forward(x, w, algorithm=winolab.fft(64, products=products), padding=1)
    assert y.dtype == np.float32
    relative = np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2))
    assert relative <= ALLOWED * 2.0**-24


def test_a_transform_serves_every_size_of_window():
    problem = Problem.of((1, 30, 9, 1), (1, 5, 3, 1))
    assert fft.windows(problem, winolab.fft((8, 16)), "forward") == (
        fft.Window(4, 5),
        fft.Window(14, 3),
    )
    assert fft.windows(problem, winolab.fft(8), "backward_filter") == (
        fft.Window(5, 4),
        fft.Window(3, 6),
    )


def test_text_round_trips():
    for algorithm in (winolab.fft(), winolab.fft((8, 16), products=4)):
        assert parse_algorithm(str(algorithm)) == algorithm
    assert parse_algorithm("fft:64") == winolab.fft(64)


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("fft:4", {}, "shorter than the filter's 5 taps"),
        ("fft:8", {"stride": 2}, "use dwm or direct"),
        ("fft:8x8", {}, "has 2 dimensions; the problem has 1"),
        ("fft:8", {"precision": "exact"}, "cannot run in exact"),
        ("fft:8:5", {}, "3 or 4"),
        ("fft:0", {}, "expected sizes of 1 or more"),
    ],
)
def test_errors_say_what_is_possible(algorithm, options, message):
    with pytest.raises(ValueError, match=message):
        winolab.conv_forward(np.ones((1, 9, 1)), np.ones((1, 5, 1)), algorithm=algorithm, **options)


def test_half_precision_products_overflow_to_infinity_without_warning():
    x, w = np.full((1, 9, 1), 6e4), np.full((1, 3, 1), 1.0)
    y = winolab.conv_forward(x, w, algorithm="fft:8", precision=PRESETS["fp16"])
    assert not np.isfinite(y).all()


@pytest.mark.parametrize("products", [3, 4])
def test_an_infinite_part_of_a_spectrum_leaves_the_other(products: int) -> None:
    """1j · ∞ is NaN + ∞j, with a warning."""
    nothing: Any = None
    engine = fft.Fourier(nothing, nothing, (), PRESETS["fp32"], products=products)
    v, u = np.array([[[2.0**100]]], np.complex64), np.array([[[1 + 2.0**100 * 1j]]], np.complex64)
    with np.errstate(all="raise"):
        m = engine._multiplied(v, u)
    assert (m.dtype, m[0, 0, 0].real, m[0, 0, 0].imag) == (np.complex64, 2.0**100, np.inf)
