"""The bound holds at the ends of every format, wherever a stage has one of its own."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.algorithm import Problem, direct, parse_algorithm
from winolab.ref.algebra.program import program
from winolab.ref.algorithms import winograd
from winolab.ref.arithmetic.accumulate import Accumulation
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import Float, arithmetic
from winolab.ref.arithmetic.split import Power, Scale
from winolab.ref.error.proven import proven
from winolab.ref.error.roundings import Stage, Unit, Units, operand_unit
from winolab.ref.kinds.registry import ENGINES

ALGORITHMS = ["direct", "winograd:2:3", "gamma:8:6:3", "gamma:16:14:3", "dwm:3:2", "fft:8:3"]
NARROW = [f for f in FORMATS if f != "fp64"]
ORDERS = ["sequential", "pairwise", "kahan", "two_level:2", "tensor_core:4:1:truncate"]


def worst(a, b, algorithm, run, direction="forward", problem=None):
    """The largest |error| / bound, exactly; infinity where a bounded output is not finite."""
    problem = problem or Problem.of(a.shape, b.shape)
    y = run.to_float64(getattr(ENGINES[algorithm.kind], direction)(a, b, problem, algorithm, run))
    exact = arithmetic("exact")
    oracle = getattr(winograd, direction)(
        exact.asarray(a), exact.asarray(b), problem, direct(), exact
    )
    limit = proven(a, b, problem, algorithm, run, direction=direction)
    found = 0.0
    for got, value, bound in zip(y.ravel(), oracle.ravel(), limit.ravel(), strict=True):
        if np.isfinite(bound):
            error = abs(Fraction(float(got)) - value) if np.isfinite(got) else np.inf
            assert bound > 0 or not error
            found = max(found, float(error / Fraction(float(bound))) if error else 0.0)
    return found


@st.composite
def arithmetics(draw):
    """Any format at any stage, sums in any order, filters' own, scaled, in parts."""
    storage, transform, product = (FORMATS[draw(st.sampled_from(list(FORMATS)))] for _ in range(3))
    wide = product.precision > 26 or draw(st.booleans())
    accumulate = FORMATS["fp64" if wide else draw(st.sampled_from(NARROW))]
    order = "unspecified" if wide else draw(st.sampled_from(ORDERS))
    filters = draw(st.sampled_from([None, None, *FORMATS]))
    scale = draw(st.sampled_from([None, None, (4, -3), (-20, 2), (30, 30), (-9, -30)]))
    return Float(
        storage,
        transform,
        product,
        accumulate,
        Accumulation.parse(order),
        fused=draw(st.booleans()),
        parts=draw(st.sampled_from([1, 1, 2, 3])),
        scale=scale and Scale(*(Power("given", e) for e in scale)),
        filters=FORMATS[filters] if filters else None,
    )


def ends(run):
    """Exponents of magnitudes near the ends of a stage's format, and in the middle."""
    formats = [run.storage, run.transform, run.product, run.accumulate, run.filters or run.storage]

    def near(fmt):
        lowest = max(-1074, fmt.emin - fmt.precision + 1)
        low = st.integers(lowest, min(fmt.emin + 6, lowest + 60))
        return st.one_of(st.integers(-12, 4), low, st.integers(fmt.emax - 12, fmt.emax - 1))

    return st.sampled_from(formats).flatmap(near)


@st.composite
def cases(draw) -> tuple:
    run = draw(arithmetics())
    text = draw(st.sampled_from(ALGORITHMS))
    if text.startswith("fft") and run.transform.name not in ("fp32", "fp64"):
        text = "direct"
    algorithm = parse_algorithm(text)
    served = ["forward", "backward_data"] + ["backward_filter"] * (algorithm.kind != "gamma")
    direction = draw(st.sampled_from(served))
    problem = Problem.of((1, draw(st.integers(5, 18)), 2), (2, 3, 2), padding=1)
    shapes = {
        "forward": (problem.x_shape, problem.w_shape),
        "backward_data": (problem.y_shape, problem.w_shape),
        "backward_filter": (problem.x_shape, problem.y_shape),
    }[direction]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    data = []
    for shape in shapes:
        kind, exponent = draw(st.sampled_from(["signs", "normal", "wide"])), draw(ends(run))
        x = rng.choice([-1.0, 1.0], shape) if kind == "signs" else rng.standard_normal(shape)
        if kind == "wide":
            exponent = np.clip(exponent + rng.integers(-12, 12, shape), -1074, 1020)
        x = np.ldexp(x, exponent)
        stored = draw(st.booleans())
        data.append(run.to_float64(run.asarray(x)) if stored else x)
    if not all(np.isfinite(v).all() for v in data):
        data = [np.where(np.isfinite(v), v, 1.0) for v in data]
    return (*data, algorithm, run, direction, problem)


@settings(deadline=None, max_examples=150)
@given(cases())
def test_errors_stay_below_the_bound(case):
    assert worst(*case) <= 1


@pytest.mark.parametrize("exponent", [-1074, -1050, -1040, -600])
@pytest.mark.parametrize("text", ["gamma:16:14:3", "dwm:3:2", "fft:16:3", "direct"])
def test_fp64_underflows(exponent, text):
    """Random signs: the bound of α = 16 was exceeded 5,000 times, that of the FFT at 2^-600 too."""
    rng = np.random.default_rng(0)
    x = np.ldexp(rng.choice([-1.0, 1.0], (1, 16, 1)), exponent)
    for power in (0, -500, -30):
        w = np.ldexp(rng.choice([-1.0, 1.0], (1, 3, 1)), power)
        assert worst(x, w, parse_algorithm(text), arithmetic("fp64")) <= 1


@pytest.mark.parametrize("text", ["winograd:2:3", "gamma:8:6:3"])
@pytest.mark.parametrize(
    "precision",
    [
        "fp32,filters=fp16",
        "fp16,filters=fp8_e4m3",
        "fp32,transform=fp16",
        "fp64,transform=fp16",
        "fp16,transform=fp16,outputs=fp32",
        "fp32,outputs=fp16",
    ],
)
def test_transforms_of_wider_data_underflow_and_overflow(precision, text):
    """The bound was exceeded 1,021 times: sums of numbers that the format does not hold."""
    run = arithmetic(precision)
    for seed, exponents in enumerate([(0, -20), (-20, 0), (-22, -2), (0, 15), (15, 0)]):
        rng = np.random.default_rng(seed)
        x, w = (
            np.ldexp(rng.uniform(-1, 1, s).astype("f"), e)
            for s, e in zip([(1, 12, 1), (1, 3, 1)], exponents, strict=True)
        )
        assert worst(x, w, parse_algorithm(text), run) <= 1


def test_fft_of_small_numbers_has_a_bound():
    """Norms' squares underflow in FP64, and FP16's stored numbers do in FP16."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 12, 2)), rng.standard_normal((2, 3, 2))
    for precision, exponent in (("fp64", -600), ("fp32,storage=fp16", -20)):
        problem, run, algorithm = Problem.of(x.shape, w.shape), arithmetic(precision), "fft:8:3"
        some = np.ldexp(x, exponent)
        assert np.isfinite(proven(some, w, problem, parse_algorithm(algorithm), run)).all()
        assert worst(some, w, parse_algorithm(algorithm), run) <= 1


def test_units_of_numbers_that_a_format_does_not_hold():
    """By hand: a sum underflows, a product by a power of two rounds; parts pass through FP32."""
    fp16 = FORMATS["fp16"]
    matrix = ((Fraction(2), Fraction(0)), (Fraction(1), Fraction(-1)))
    units = Units.of(arithmetic("fp32,transform=fp16"))
    assert not units.held
    assert Units.of(arithmetic("fp32")).held
    wide, held = (Stage.of(program(matrix), matrix, units, held=h) for h in (False, True))
    assert wide.growth == pytest.approx(np.log1p(fp16.unit_roundoff), rel=1e-9)
    assert wide.floor == fp16.smallest_subnormal / 2
    twice = Stage.of(program(matrix[:1]), matrix[:1], units, held=False)
    assert twice.growth > Stage.of(program(matrix[:1]), matrix[:1], units).growth == 0
    assert held.growth <= wide.growth
    assert Unit.of(FORMATS["fp64"]) == Unit(2.0**-53, 2.0**-1074)
    run = arithmetic("fp64,parts=2")
    assert isinstance(run, Float)
    assert operand_unit(run, FORMATS["fp64"]).relative >= 2.0**-50
