"""Predictions of every kind of algorithm against simulation; bounds say how far off they are."""

from __future__ import annotations

import numpy as np
import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.problem import shapes
from winolab.ref.algorithms import convolution
from winolab.ref.arithmetic.simulated import arithmetic, summed
from winolab.ref.error.expected import expected
from winolab.ref.error.moments import Moments
from winolab.ref.kinds.registry import ENGINES

LAYER = Problem.of((2, 20, 20, 32), (8, 3, 3, 32), padding=1)
STRIDED = Problem.of((2, 21, 21, 32), (8, 5, 5, 32), padding=1, stride=2)
ONE = Moments(0.0, 1.0)


def ratio(text: str, precision: str, direction: str, problem: Problem, mean: float) -> float:
    """Simulated error over the predicted one, of uniform data around the mean."""
    rng, algorithm, run = np.random.default_rng(0), parse_algorithm(text), arithmetic(precision)
    dtype = "f2" if precision == "fp16" else "f4"
    a, b = (
        (mean + rng.uniform(-1, 1, shape)).astype(dtype).astype("f4")
        for shape in shapes(direction, problem)[:2]
    )
    y = getattr(ENGINES[algorithm.kind], direction)(
        a, b, problem, algorithm, summed(run, algorithm)
    )
    exact = getattr(convolution, direction)(a.astype(float), b.astype(float), problem)
    data = Moments.of(a), Moments.of(b)
    found = expected(*data, problem, algorithm, run, direction=direction).relative_rms
    return float(np.linalg.norm(y - exact) / np.linalg.norm(exact)) / found


SMALL = Problem.of((3, 9, 7, 16), (8, 3, 3, 16), padding=1)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("text", ["fft:8", "fft:16", "fft:32", "fft:16:4"])
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_transforms_by_fft_within_30_percent(text, precision, direction) -> None:
    assert 0.8 <= ratio(text, precision, direction, LAYER, 0.0) <= 1.15
    # errors of few states, of as many channels and filters
    assert 0.7 <= ratio(text, precision, direction, LAYER, 1.0) <= 1.3


@pytest.mark.parametrize("mean", [0.0, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("text", ["fft:8:4", "fft:16"])
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_a_mean_is_at_the_lowest_frequencies(text, direction, mean) -> None:
    """The prediction was ten times the error, where all frequencies had as much of the mean."""
    for problem in (LAYER, SMALL):
        for precision in ("fp32", "fp16"):
            assert 0.6 <= ratio(text, precision, direction, problem, mean) <= 1.45


ONE_TAP = Problem.of((2, 9, 9, 16), (48, 1, 1, 16))
ONE_ROW = Problem.of((3, 1, 20, 16), (32, 1, 5, 16))
PADDED_ROW = Problem.of((3, 1, 20, 16), (32, 3, 3, 16), padding=1)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("text", ["fft:16", "fft:32:3", "fft:32:4"])
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_states_of_one_number_err_alike(text, direction, precision) -> None:
    """Errors of a filter of one tap, or of a map of one row, stay at its place: predictions were
    0.65 of the error of small maps, by which a tolerance was not kept."""
    for problem in (ONE_TAP, ONE_ROW, PADDED_ROW):
        assert 0.7 <= ratio(text, precision, direction, problem, 0.0) <= 1.55


@pytest.mark.parametrize("mean", [0.0, 1.0])
@pytest.mark.parametrize(
    ("text", "direction", "problem"),
    [("dwm:3:2", "forward", LAYER), ("dwm:3:4", "backward_data", LAYER),
     ("dwm:3:2", "forward", STRIDED), ("dwm:3:2", "backward_filter", LAYER),
     ("omega:8:3:6", "backward_filter", LAYER), ("winrs", "backward_filter", LAYER),
     ("gamma:8:6:3;variant=two_level:32", "forward", LAYER)],
)  # fmt: skip
def test_pieces_and_segments_within_15_percent(text, direction, problem, mean) -> None:
    least = 0.6 if mean and not problem.unit else 0.85  # of pieces whose means add up
    assert least <= ratio(text, "fp32", direction, problem, mean) <= 1.15


def test_spectra_that_overflow_are_no_small_error() -> None:
    large = Moments(0.0, 700.0**2)
    found = expected(large, ONE, LAYER, "fft:32", "fp16")
    assert (found.relative_rms, found.range) == (np.inf, "overflow")
    assert expected(large, ONE, LAYER, "fft:8", "fp16").relative_rms < 1e-3


def test_spectra_of_large_means_and_of_wide_data_are_finite_where_they_are() -> None:
    """Spectra of data around a mean have one large state; others grow by the root of the length."""
    wide = Moments(0.0, 1.0, peak=200.0)  # 20² times as much is above the largest number of FP16
    assert expected(wide, ONE, LAYER, "fft:32", "fp16").relative_rms < 1e-3
    for mean, finite in ((100.0, True), (200.0, False)):
        found = expected(Moments(mean, 1.0), ONE, LAYER, "fft:32:4", "fp16")
        assert np.isfinite(found.relative_rms) == finite
        x = np.full(LAYER.x_shape, mean, np.float32)
        one = np.ones(LAYER.w_shape, np.float32)
        y = ENGINES["fft"].forward(x, one, LAYER, parse_algorithm("fft:32:4"), arithmetic("fp16"))
        assert np.isfinite(y).all() == finite


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    for how, message in (
        (
            ("forward", "winrs", "fp32"),
            "winrs compute filter gradients only; for forward use gamma",
        ),
        (("forward", "fft:16", "fp32,transform=fp16"), "fft:16:3 transforms in FP32 or FP64"),
        (("sideways", "direct", "fp32"), "direction 'sideways'"),
        (("forward", "gamma:8:4:5", "fp32"), "gamma:8:4:5 serves 5 taps or more"),
    ):
        direction, text, precision = how
        with pytest.raises(ValueError, match=message):
            expected(ONE, ONE, LAYER, text, precision, direction=direction)
    with pytest.raises(TypeError, match="expected two arrays or two moments"):
        expected(np.ones(LAYER.x_shape), ONE, LAYER, "direct", "fp32")
