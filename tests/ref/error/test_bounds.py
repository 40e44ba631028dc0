"""The bound holds: error <= bound over random tiles, shapes, arithmetics, directions and data."""

from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.algorithm import Problem, direct, parse_algorithm
from winolab.ref.algebra.transforms import Programs
from winolab.ref.algorithms import convolution, sample, winograd
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.bounds import Magnitude, bound
from winolab.ref.error.metrics import compare

ORACLE = {
    "forward": convolution.forward,
    "backward_data": convolution.backward_data,
    "backward_filter": convolution.backward_filter,
}
SIMULATED = {
    "forward": winograd.forward,
    "backward_data": winograd.backward_data,
    "backward_filter": winograd.backward_filter,
}
PRECISIONS = [
    "fp32",
    "fp32,fused=no",
    "fp32,accumulation=two_level:4",
    "fp32,accumulation=pairwise",
    "fp32,accumulation=kahan",
    "fp32,accumulation=kahan,fused=no",
    "fp32,storage=fp16",
    "fp32,accumulation=tensor_core:4:0:truncate",
    "tf32",
    "bf16",
    "fp16",
    "fp16,accumulation=tensor_core:16:2:nearest",
    "fp16,sums=fp16,scale=-2:-1",
    "fp16,transform=fp16,accumulate=fp16,accumulation=sequential",
    "fp16,transform=fp16,outputs=fp32",
    "bf16,transform=bf16,accumulate=bf16,accumulation=pairwise",
    "tf32,accumulate=fp64,accumulation=unspecified",
    "fp32_split",
    "fp32_split,accumulation=tensor_core:16:2:truncate:192",
    "fp32_split,accumulation=tensor_core:16:2:truncate:144+96",
    "fp32_split,accumulation=tensor_core:16:2:truncate:144,ahead=1,filters=fp64",
    "fp32_split,scale=none",
    "fp32_split,scale=4:-3,accumulation=sequential",
    "fp32_split,product=bf16,parts=3",
]
ALGORITHMS = {
    1: ["direct", "winograd:4:3", "winograd:3:4@wincnn", "gamma:8:6:3", "gamma:16:8:9@paper"],
    2: ["direct", "winograd:2x2:3x3", "winograd:4x3:3x2@paper;scaling=l1", "gamma:8:4:5"],
    3: ["direct", "winograd:2x2x2:3x3x3", "gamma:4:3:2"],
}
TAPS = {"gamma:8:6:3": 3, "gamma:16:8:9@paper": 9, "gamma:8:4:5": 5, "gamma:4:3:2": 2}


@st.composite
def cases(draw):
    """(algorithm, direction, problem, two tensors)."""
    ndim = draw(st.sampled_from([1, 1, 2, 2, 3]))
    algorithm = parse_algorithm(draw(st.sampled_from(ALGORITHMS[ndim])))
    directions = [d for d in SIMULATED if algorithm.kind != "gamma" or d != "backward_filter"]
    direction = draw(st.sampled_from(directions))
    more = st.integers(0, 2 if ndim < 3 else 0)  # taps than a tile's
    if algorithm.kind == "gamma":
        taps = [draw(st.integers(1, 3)) for _ in range(ndim - 1)]
        taps.append(algorithm.tiles[0].r + draw(more))
    elif algorithm.kind == "winograd" and direction != "backward_filter":
        taps = [tile.r + draw(more) for tile in algorithm.tiles]
    else:
        taps = [draw(st.integers(1, 4)) for _ in range(ndim)]
    largest = {1: 20, 2: 9, 3: 5}[ndim]
    sizes = [t + draw(st.integers(0, max(1, largest - t))) for t in taps]
    batch, inputs, outputs = (draw(st.integers(1, 3)) for _ in range(3))
    padding = [draw(st.integers(0, t - 1)) for t in taps]
    problem = Problem.of((batch, *sizes, inputs), (outputs, *taps, inputs), padding=padding)
    shapes = {
        "forward": (problem.x_shape, problem.w_shape),
        "backward_data": (problem.y_shape, problem.w_shape),
        "backward_filter": (problem.x_shape, problem.y_shape),
    }
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    fill = draw(st.sampled_from(["signed", "positive", "wide", "few", "tiny"]))
    return algorithm, direction, problem, [data(rng, fill, s) for s in shapes[direction]]


def data(rng, fill, shape):
    if fill == "positive":
        return rng.uniform(1, 2, shape)
    if fill == "few":  # integers: many sums are exact, many are ties
        return rng.integers(-3, 4, shape).astype(float)
    x = rng.uniform(-1, 1, shape)
    if fill == "wide":
        x *= 2.0 ** rng.integers(-12, 7, shape)
    return x * 2.0**-16 if fill == "tiny" else x  # FP16's products are subnormal or 0


def errors(case, run, programs=None):
    """compare() with the bound, over the outputs that have one; the oracle is FP64."""
    algorithm, direction, problem, (a, b) = case
    y = run.to_float64(SIMULATED[direction](a, b, problem, algorithm, run, programs))
    limit = bound(a, b, problem, algorithm, run, direction=direction, programs=programs)
    exact, proven = ORACLE[direction](a, b, problem), np.isfinite(limit)
    if precise(run):
        assert proven.all()
    return compare(y[proven], exact[proven], limit[proven])


def precise(run):
    """Formats whose range and precision always leave a bound for the cases' tiles and data."""
    return run.accumulate.name == "fp32" == run.transform.name and run.product.precision >= 24


@settings(deadline=None, max_examples=250)
@given(cases(), st.sampled_from(PRECISIONS))
def test_errors_stay_below_the_bound(case, precision):
    found = errors(case, arithmetic(precision))
    assert found.count == 0 or found.worst_ratio <= 1


@settings(deadline=None, max_examples=25)
@given(cases(), st.integers(5, 9))
def test_typed_constants_stay_below_the_bound(case, digits):
    algorithm = case[0]
    exact = winograd.programs_of(algorithm)
    context = Context(prec=digits)

    def typed(q):
        return Fraction(context.divide(Decimal(q.numerator), Decimal(q.denominator)))

    def programs(tile):
        kept = exact(tile)
        return Programs(*(p.with_constants(typed) for p in (kept.AT, kept.G, kept.BT)))

    assert errors(case, arithmetic("fp32"), programs).worst_ratio <= 1


@pytest.mark.parametrize("precision", ["fp64", "mp:40", "mp:100"])
def test_wide_arithmetics_stay_below_the_bound(precision):
    rng = np.random.default_rng(0)
    x, w = rng.uniform(-1, 1, (1, 9, 8, 3)), rng.uniform(-1, 1, (2, 3, 3, 3))
    problem, run, oracle = Problem.of(x.shape, w.shape, padding=1), arithmetic(precision), "mp:200"
    for text in ("direct", "winograd:4x4:3x3", "gamma:8:6:3"):
        algorithm = parse_algorithm(text)
        y = run.to_float64(winograd.forward(x, w, problem, algorithm, run))
        exact = winograd.forward(x, w, problem, direct(), arithmetic(oracle))
        exact = arithmetic(oracle).to_float64(exact)
        limit = bound(x, w, problem, algorithm, run)
        assert compare(y, exact, limit).worst_ratio <= 1
        assert limit.max() <= {"fp64": 2e-11, "mp:40": 1e-7, "mp:100": 1e-11}[precision]


def test_adversarial_sums_come_close_to_the_bound():
    """1 followed by K−1 terms just below half a unit: every rounding loses its whole unit."""
    k = 512
    x = np.full((1, 1, k), np.float32(2.0**-24))
    x[..., 0] = 1
    problem = Problem.of((1, 1, k), (1, 1, k))
    found = errors((direct(), "forward", problem, [x, np.ones_like(x)]), arithmetic("fp32"))
    assert 0.99 <= found.worst_ratio <= 1


def test_adversarial_alignment_comes_close_to_the_bound():
    """Products just below the spacing that the accumulator is aligned to vanish, all of them."""
    k = 512
    x = np.full((1, 1, k), 2.0**-12 * (1 - 2.0**-10))
    w = np.full((1, 1, k), 2.0**-12)
    x[..., 0] = w[..., 0] = 1
    problem = Problem.of(x.shape, w.shape)
    run = arithmetic("tf32,storage=tf32")  # data that need no rounding
    found = errors((direct(), "forward", problem, [x, w]), run)
    # 8 addends lose a unit each; the bound allows truncation of the sum 2 more
    assert 0.75 <= found.worst_ratio <= 0.8


def test_sampled_bounds_are_the_whole_ones():
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (2, 11, 13, 5)).astype(np.float32)
    w = rng.uniform(-1, 1, (6, 3, 3, 5)).astype(np.float32)
    problem, algorithm = Problem.of(x.shape, w.shape, padding=1), parse_algorithm("gamma:8:6:3")
    drawn = sample.draw(problem, algorithm, 200, seed=0)
    run = arithmetic("fp32")
    _, where = sample.forward(x, w, problem, algorithm, run, drawn)
    some = bound(x, w, problem, algorithm, run, sample=drawn)
    whole = bound(x, w, problem, algorithm, run).reshape(-1, 6)[where][:, drawn.channels]
    np.testing.assert_allclose(some, whole, rtol=1e-12)
    with pytest.raises(ValueError, match="only forward has samples"):
        bound(x, w, problem, algorithm, run, direction="backward_data", sample=drawn)
    with pytest.raises(ValueError, match="direction 'up'"):
        bound(x, w, problem, algorithm, run, direction="up")


def test_no_bound_is_infinite_and_exact_is_zero():
    x, w = np.ones((1, 8, 300)), np.ones((2, 3, 300))
    problem, algorithm = Problem.of(x.shape, w.shape), parse_algorithm("winograd:2:3")
    ku = arithmetic("bf16,transform=bf16,accumulate=bf16,accumulation=sequential")
    assert np.isinf(bound(x, w, problem, algorithm, ku)).all()
    fp16 = arithmetic("fp16")
    assert np.isfinite(bound(x, w, problem, algorithm, fp16)).all()
    assert np.isinf(bound(x * 7e4, w, problem, algorithm, fp16)).all()  # storage overflows
    assert np.isinf(bound(x * 4e4, w, problem, algorithm, fp16)).all()  # BT's sums overflow
    assert np.isinf(bound(x * np.nan, w, problem, algorithm, fp16)).all()
    assert not bound(x, w, problem, algorithm, arithmetic("exact")).any()
    with pytest.raises(TypeError, match="states no roundings"):
        bound(x, w, problem, algorithm, Magnitude())


def test_a_region_bounds_each_of_its_kinds():
    """Γ's boundary falls back to smaller tiles and direct columns: all are covered."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (1, 3, 25, 4)).astype(np.float32)
    w = rng.uniform(-1, 1, (3, 1, 9, 4)).astype(np.float32)
    problem, algorithm = Problem.of(x.shape, w.shape), parse_algorithm("gamma:16:8:9")
    assert len(winograd.regions(problem, algorithm)) > 1
    found = errors((algorithm, "forward", problem, [x, w]), arithmetic("fp32"))
    assert found.worst_ratio <= 1
    grouped = replace(problem, in_channels=8, out_channels=6, groups=2)
    pair = [np.concatenate([x, x], axis=-1), np.concatenate([w, w])]
    assert errors((algorithm, "forward", grouped, pair), arithmetic("tf32")).worst_ratio <= 1


@pytest.mark.parametrize("shape", [(1, 8, 0), (1, 0, 2), (0, 8, 2)])
def test_empty_tensors_have_empty_or_zero_bounds(shape):
    problem = Problem.of(shape, (3, 3, shape[-1]))
    x, w = np.ones(shape), np.ones((3, 3, shape[-1]))
    for text in ("direct", "winograd:2:3", "gamma:8:6:3"):
        for precision in ("fp32", "tf32", "fp32,accumulation=kahan"):
            limit = bound(x, w, problem, parse_algorithm(text), arithmetic(precision))
            assert limit.shape == problem.y_shape
            assert (limit < 1e-30).all()
