"""Metrics by hand, noise gain against known values and simulated errors."""

import math
from fractions import Fraction

import numpy as np
import pytest

from winolab.algorithm import Problem, Tile, parse_algorithm
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.metrics import ADMISSIBLE, QUANTILES, compare, error_ratio, noise_gain


def test_metrics_are_what_they_say():
    c = compare([1.0, 2.5, -3.0, 0.0], [1.0, 2.0, -4.0, 0.0], [0.0, 1.0, 2.0, 0.5])
    assert c.mare == (0.25 + 0.25) / 4
    assert c.max_relative == 0.25
    assert c.relative_rms == math.sqrt((0.25 + 1) / (1 + 4 + 16))
    assert c.max_abs == 1
    assert c.mse == 1.25 / 4
    assert c.bias == (0.5 + 1) / 4
    assert c.relative_bias == 1.5 / 7
    assert c.worst_ratio == 0.5
    assert c.unbounded == 0
    assert c.count == 4
    row = c.row()
    assert row["q50"] == 0
    assert row["q75"] == row["q99.9"] == 0.25
    assert len(c.quantiles) == len(QUANTILES)
    assert all(np.isscalar(v) for v in row.values())


def test_nothing_is_hidden():
    bad = compare([np.nan, 1.0], [1.0, 1.0], 1.0)
    for value in (bad.mare, bad.max_relative, bad.relative_rms, bad.max_abs, bad.mse, bad.bias):
        assert math.isnan(value)
    assert not bad.worst_ratio <= 1
    assert np.isnan(bad.quantiles).all()
    overflow = compare([np.inf, 1.0], [1.0, 1.0], [2.0, 2.0])
    assert overflow.mare == overflow.max_abs == overflow.relative_rms == np.inf
    assert overflow.worst_ratio == np.inf
    assert math.isnan(compare([np.inf], [np.inf]).mare)
    assert math.isnan(compare([0.0], [0.0], [np.nan]).worst_ratio)
    nothing = compare([1.0], [0.0], [np.inf])
    assert nothing.mare == nothing.relative_rms == np.inf
    assert nothing.worst_ratio == 0
    assert nothing.unbounded == 1
    assert compare([0.0], [0.0], [0.0]).worst_ratio == 0
    assert compare([1.0], [0.0], [0.0]).worst_ratio == np.inf


def test_empty_and_misfit_arrays():
    empty = compare(np.empty((0, 3)), np.empty((0, 3)), np.empty((0, 3)))
    assert empty.mare == empty.worst_ratio == empty.count == 0
    assert math.isnan(compare([1.0], [1.0]).worst_ratio)
    with pytest.raises(ValueError, match=r"^the result has shape \(2,\); expected \(1,\)"):
        compare([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="negative elements"):
        compare([1.0], [1.0], [-1.0])


def test_errors_known_closer_than_fp64_replace_the_difference():
    c = compare([1.0, 2.0], [1.0, 2.0], [1e-20, 1e-20], error=[3e-30, -4e-30])
    assert (c.max_abs, c.max_relative) == (4e-30, 3e-30)
    assert c.mare == pytest.approx(2.5e-30, rel=1e-15)
    assert c.worst_ratio == 4e-30 / 1e-20
    assert c.relative_rms == pytest.approx(5e-30 / math.sqrt(5), rel=1e-15)
    with pytest.raises(ValueError, match=r"^the errors have shape \(1,\); expected \(2,\)"):
        compare([1.0, 2.0], [1.0, 2.0], error=[0.0])


@pytest.mark.parametrize("size", [5e-324, 1e-200, 1e250])
def test_squares_neither_vanish_nor_overflow(size):
    assert compare([0.0, 0.0], [1.0, 1.0], error=[size, -size]).relative_rms == size


def test_noise_gain_of_known_tiles():
    assert noise_gain(parse_algorithm("direct")) == 1
    # F(2,3): AT has columns of squared norm 1, 2, 2, 1; G 1, 3/4, 3/4, 1; BT 2 in every row
    f23 = Fraction(1, 6) * (1 * 1 * 2 + 2 * Fraction(3, 4) * 2 * 2 + 1 * 1 * 2)
    assert noise_gain(parse_algorithm("gamma:4:2:3@paper")) == pytest.approx(float(f23), rel=1e-15)
    nested = noise_gain(parse_algorithm("winograd:2x2:3x3@paper"))
    assert nested == pytest.approx(float(f23) ** 2, rel=1e-15)
    for text in ("gamma:8:6:3@paper", "gamma:16:8:9@paper"):
        scaled = noise_gain(parse_algorithm(f"{text};scaling=l1"))
        assert scaled == pytest.approx(noise_gain(parse_algorithm(text)), rel=1e-12)
        assert noise_gain(text) == noise_gain(parse_algorithm(text))


@pytest.mark.parametrize("text", ["winrs", "fft:8"])
def test_what_has_no_tiles_has_no_noise_gain(text):
    with pytest.raises(ValueError, match=f"^{text}.* has no tiles of its own"):
        noise_gain(text)


@pytest.mark.parametrize("algorithm", ["direct", "gamma:8:6:3", "winograd:4x4:3x3"])
def test_zero_mean_error_grows_with_the_root_of_noise_gain(algorithm):
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (2, 14, 14, 192)).astype(np.float32)
    w = rng.uniform(-1, 1, (24, 3, 3, 192)).astype(np.float32)
    problem, value = Problem.of(x.shape, w.shape), parse_algorithm(algorithm)
    y = winograd.forward(x, w, problem, value, arithmetic("fp32")).astype(float)
    found = compare(y, convolution.forward(x, w, problem)).relative_rms
    # products a state accumulates; the tile's own taps are part of the gain
    depth = 192 * {"direct": 9, "gamma:8:6:3": 3, "winograd:4x4:3x3": 1}[algorithm]
    expected = 0.30 * 2.0**-24 * math.sqrt(depth * noise_gain(value))
    # transforms, whose roundings do not grow with K, add to it: 15 % of direct's, 25 % of nested
    assert 0.85 * expected <= found <= 1.3 * expected


def test_error_ratios_of_precisions():
    """Split products on F(6,3) err less than FFMA; TF32 has not FP32's accuracy."""
    tile = Tile(6, 3)
    split, fp32 = error_ratio(tile, precision="fp32_split"), error_ratio(tile)
    assert split < fp32 < ADMISSIBLE < error_ratio(tile, precision="tf32")
    assert error_ratio(Tile(1, 1), precision="fp32_split") < 1
