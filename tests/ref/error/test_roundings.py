"""Roundings counted by hand, and the constant of compensated summation against simulated sums."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.algorithm import Problem, parse_algorithm
from winolab.ref.algebra.program import program
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import Float, arithmetic
from winolab.ref.error.bounds import bound
from winolab.ref.error.predict import Moments, predict
from winolab.ref.error.roundings import (
    Stage,
    Unit,
    Units,
    accumulation_unit,
    depth_of,
    kahan_factor,
    rounded_constant,
    tiling,
)

U = 2.0**-24


def test_accumulation_units_count_roundings():
    def roundings(order, k, base="fp32"):
        run = arithmetic(f"{base},accumulation={order}")
        assert isinstance(run, Float)
        return accumulation_unit(run, k).relative / U

    assert roundings("sequential", 100) == pytest.approx(100, rel=1e-5)
    assert roundings("two_level:10", 100) == pytest.approx(19, rel=1e-5)
    assert roundings("pairwise", 100) == pytest.approx(8, rel=1e-5)
    assert roundings("pairwise", 1) == pytest.approx(1, rel=1e-5)
    assert roundings("kahan", 10**4) == pytest.approx(4, rel=2e-2)
    # 12.5 chunks: 8 addends lose less than u each (1 extra bit), then truncation 2u
    assert roundings("tensor_core:8:1:truncate", 100, "tf32") == pytest.approx(130, rel=1e-4)
    assert roundings("tensor_core:8:1:nearest", 100, "tf32") == pytest.approx(117, rel=1e-4)
    assert roundings("sequential", 0) == 0
    assert kahan_factor(10**9, 2.0**-8) == np.inf


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 300), st.integers(0, 2**32))
def test_kahan_factor_bounds_simulated_sums(k, seed):
    rng = np.random.default_rng(seed)
    fmt = FORMATS["bf16"]
    terms = fmt.round(rng.standard_normal((20, k)) * 2.0 ** rng.integers(-4, 5, (20, k)))
    run = arithmetic("bf16,transform=bf16,accumulate=bf16,accumulation=kahan")
    total = run.to_float64(run.matmul(terms, np.ones((k, 1))))[:, 0]
    error = np.abs(total - terms.sum(axis=1)) / np.abs(terms).sum(axis=1)
    assert error.max() <= kahan_factor(k, fmt.unit_roundoff)


def test_a_format_that_holds_another_rounds_nothing():
    fp16, fp32, tf32, bf16 = (FORMATS[name] for name in ("fp16", "fp32", "tf32", "bf16"))
    assert Unit.of(fp32, fp16, bf16) == Unit()
    assert Unit.of(tf32, fp16) == Unit.of(tf32, bf16) == Unit()
    assert Unit.of(fp16, bf16) == Unit(2.0**-11, 2.0**-25)  # fewer bits, more exponents
    assert Unit.of(fp16) == Unit(2.0**-11, 2.0**-25)


def test_a_stage_follows_the_longest_path():
    matrix = ((Fraction(1), Fraction(2), Fraction(0)), (Fraction(1, 3), Fraction(0), Fraction(0)))
    stage = Stage.of(program(matrix), matrix, Units.of(arithmetic("fp32")))
    third = abs(float(Fraction(float(np.float32(1 / 3))) * 3 - 1))
    assert stage.growth == pytest.approx(U + third, rel=1e-6)  # a product by a rounded constant
    assert stage.gain == 3
    assert stage.typed == 0
    assert stage.floor == 2.0**-150  # half the smallest subnormal
    other = ((Fraction(1), Fraction(2), Fraction(0)), (Fraction(1, 2), Fraction(0), Fraction(0)))
    assert Stage.of(program(matrix), other, Units.of(arithmetic("fp32"))).typed > 0.1
    outside = ((Fraction(1), Fraction(2), Fraction(1)), matrix[1])
    assert Stage.of(program(matrix), outside, Units.of(arithmetic("fp32"))).typed == np.inf


def test_constants_out_of_range():
    run = arithmetic("fp16,transform=fp16")
    assert rounded_constant(run, Fraction(1, 3)) == Fraction(float(np.float16(1 / 3)))
    assert Units.of(run).constant(Fraction(10**6)) == np.inf
    assert rounded_constant(arithmetic("mp:100"), Fraction(1, 3)) == Fraction(1, 3)


@pytest.mark.parametrize(
    ("direction", "depths"),
    [
        ("forward", {3 * 4, 3 * 3 * 4}),  # the last column is summed directly
        ("backward_data", {3 * 6, 3 * 3 * 6}),
        ("backward_filter", {3 * 4 * 2}),  # pieces of dy, images
    ],
)
def test_depth_is_what_an_accumulator_sums(direction, depths):
    problem = Problem.of((2, 7, 9, 4), (6, 3, 3, 4))
    text = "gamma:8:6:3" if direction != "backward_filter" else "winograd:3x3:2x2"
    layer, boxes = tiling(problem, parse_algorithm(text), direction)
    assert {depth_of(layer, box) for box in boxes} == depths


@pytest.mark.parametrize("text", ["gamma:8:6:3", "dwm:3:2", "fft:8:3", "omega:8:3:6", "winrs"])
def test_what_is_not_tiled_has_no_tiling(text):
    """Not even direct's: its bound and its prediction would pass for theirs."""
    problem, one = Problem.of((2, 9, 4), (6, 3, 4)), Moments(0.0, 1.0)
    algorithm, run = parse_algorithm(text), arithmetic("fp32")
    x, dy = np.ones(problem.x_shape), np.ones(problem.y_shape)
    for refused in (
        lambda: tiling(problem, algorithm, "backward_filter"),
        lambda: bound(x, dy, problem, algorithm, run, direction="backward_filter"),
        lambda: predict(one, one, problem, algorithm, run, direction="backward_filter"),
    ):
        with pytest.raises(ValueError, match="use direct or winograd"):
            refused()
