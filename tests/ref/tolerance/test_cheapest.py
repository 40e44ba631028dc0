"""``tolerance=`` on NumPy arrays: what is computed errs less, and nothing cheaper would."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import winolab
from winolab.algorithm import direct
from winolab.arguments.tolerance import Tolerance
from winolab.problem import Problem, shapes
from winolab.ref.algorithms import convolution
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.cost.count import cost
from winolab.ref.error.expected import expected
from winolab.ref.error.moments import Moments
from winolab.ref.kinds.registry import ENGINES
from winolab.ref.tolerance.cheapest import cheapest, incurred, sure, usual
from winolab.ref.tolerance.normwise import products

DIRECTIONS = ("forward", "backward_data", "backward_filter")
DTYPES = {"fp32": "f4", "tf32": "f4", "fp16": "f2"}


@st.composite
def layers(draw: Any) -> Problem:
    """A layer of some thousand results in every direction, mostly of unit stride."""
    taps = draw(st.sampled_from([(3, 3), (5, 3), (1, 1), (2, 2), (7,)]))
    stride = draw(st.sampled_from([1, 1, 2]))
    x = (2, *(draw(st.integers(9, 15)) for _ in taps), draw(st.sampled_from([16, 32])))
    return Problem.of(x, (48, *taps, x[-1]), stride=stride, padding=draw(st.integers(0, 1)))


def operands(problem: Problem, direction: str, seed: int, dtype: str) -> list[np.ndarray]:
    """Zero-mean data of unlike sizes."""
    rng = np.random.default_rng(seed)
    first, second, _ = shapes(direction, problem)
    made = rng.standard_normal(first), rng.uniform(-0.125, 0.125, second)
    return [v.astype(dtype) for v in made]


def run(direction: str, a: Any, b: Any, problem: Problem, **how: Any) -> np.ndarray:
    call = getattr(winolab, f"conv_{direction}")
    given = {"backward_data": (problem.x_shape,), "backward_filter": (problem.w_shape,)}
    how |= {"stride": problem.stride, "padding": problem.padding}
    return call(a, b, *given.get(direction, ()), **how)


def exact(direction: str, a: Any, b: Any, problem: Problem) -> np.ndarray:
    return getattr(convolution, direction)(a.astype(float), b.astype(float), problem)


@settings(max_examples=25, deadline=None)
@given(
    layers(), st.sampled_from(DIRECTIONS), st.sampled_from([*DTYPES]),
    st.floats(0, 3), st.integers(0, 99),
)  # fmt: skip
def test_results_err_less_than_the_tolerance(problem, direction, precision, more, seed) -> None:
    a, b = operands(problem, direction, seed, DTYPES[precision])
    how = {"precision": precision}
    with pytest.raises(ValueError, match="the least that can be had") as refused:
        run(direction, a, b, problem, tolerance=1e-30, **how)
    least = float(re.findall(r"is (\S+), by", str(refused.value))[0])
    tolerance = least * 10**more
    y = run(direction, a, b, problem, tolerance=tolerance, **how).astype(float)
    reference = exact(direction, a, b, problem)
    assert np.linalg.norm(y - reference) <= tolerance * np.linalg.norm(reference)


@settings(max_examples=25, deadline=None)
@given(layers(), st.sampled_from(DIRECTIONS), st.sampled_from(["fp32", "tf32"]), st.floats(-7, -2))
def test_nothing_cheaper_is_within_the_tolerance(problem, direction, precision, power) -> None:
    arith, u11 = arithmetic(precision), Moments(0.0, 1 / 3, roundoff=1 / 7, peak=1.0)
    admitted = {}
    for engine in ENGINES.values():
        for algorithm in engine.usual(problem, direction):
            found = expected(u11, u11, problem, algorithm, arith, direction=direction)
            if sure(algorithm, arith) * found.relative_rms <= 0.96 * 10**power:
                admitted[algorithm] = cost(problem, algorithm, direction).flops
    tolerance = Tolerance("predicted", 10**power)
    if not admitted:
        return
    chosen = cheapest(tolerance, problem, arith, direction)
    assert cost(problem, chosen, direction).flops <= min(admitted.values())
    error = expected(u11, u11, problem, chosen, arith, direction=direction).relative_rms
    assert sure(chosen, arith) * error <= 1.04 * tolerance.most  # moments by two digits


@settings(max_examples=25, deadline=None)
@given(
    layers(), st.sampled_from(DIRECTIONS), st.sampled_from(["fp32", "fp16"]),
    st.integers(0, 99), st.sampled_from(["ones", "signs", "spikes"]),
)  # fmt: skip
def test_nothing_exceeds_what_is_proven(problem, direction, precision, seed, data) -> None:
    rng = np.random.default_rng(seed)
    a, b = operands(problem, direction, seed, DTYPES[precision])
    if data == "ones":
        a[...], b[...] = 0.7, 0.3
    elif data == "signs":
        a[...], b[...] = np.where(a > 0, 0.7, -0.7), np.where(b > 0, 0.1, -0.1)
    else:
        a[rng.random(a.shape) < 0.02] = 900.0
    peaks = (float(np.abs(v).max()) for v in (a, b))
    limit = products(problem, direction) * np.prod([*peaks])
    how = {"precision": precision, "out_dtype": "float32"}
    with pytest.raises(ValueError, match="tolerance proven:1e-30: ") as refused:
        run(direction, a, b, problem, tolerance="proven:1e-30", **how)
    found = re.search(r"is (\S+), by", str(refused.value))
    if found is None:  # sums that FP16 might not hold
        assert precision == "fp16"
        return
    reference = exact(direction, a, b, problem)
    for tolerance in (float(found[1]), 1e-2):
        y = run(
            direction, a, b, problem, tolerance=f"proven:{max(tolerance, float(found[1]))}", **how
        )
        assert np.abs(y - reference).max() <= max(tolerance, float(found[1])) * limit


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_componentwise_leaves_direct_products(direction) -> None:
    problem = Problem.of((2, 12, 12, 24), (16, 3, 3, 24), padding=1)
    a, b = operands(problem, direction, 0, "f4")
    a[:, 5, 5] *= 1e6  # neighbours of which tiles would lose digits
    y = run(direction, a, b, problem, tolerance="componentwise:1e-6")
    assert (y == run(direction, a, b, problem, algorithm="direct")).all()
    reference, own = (exact(direction, *v, problem) for v in ((a, b), (np.abs(a), np.abs(b))))
    assert np.sqrt((((y - reference) / own) ** 2).mean()) <= 1e-6
    cheap = run(direction, a, b, problem, tolerance=1e-5)
    assert (cheap != y).any()
    message = "tolerance componentwise:1e-09: the least that can be had in fp32 is .*, by direct"
    with pytest.raises(ValueError, match=message):
        run(direction, a, b, problem, tolerance="componentwise:1e-9")


def test_complex_arrays_keep_to_it_too() -> None:
    problem = Problem.of((2, 12, 12, 24), (16, 3, 3, 24), padding=1)
    (x, w), (i, j) = (operands(problem, "forward", seed, "f4") for seed in (0, 1))
    x, w = x + 1j * i, w + 1j * j
    wide = winolab.conv_forward(x.astype("c16"), w.astype("c16"), padding=1)
    for tolerance in (4e-7, 1e-5):
        y = winolab.conv_forward(x, w, padding=1, tolerance=tolerance)
        assert np.linalg.norm(y - wide) <= tolerance * np.linalg.norm(wide)
    with pytest.raises(ValueError, match="of complex arrays; expected a number"):
        winolab.conv_forward(x, w, padding=1, tolerance="proven:1e-3")


def test_storage_and_the_result_s_type_count() -> None:
    problem = Problem.of((2, 12, 12, 24), (16, 3, 3, 24), padding=1)
    x, w = operands(problem, "forward", 0, "f4")
    reference = exact("forward", x, w, problem)
    wishes: list[dict[str, Any]] = [{"out_dtype": "float16"}, {"precision": "fp16"}]
    for wish in wishes:
        with pytest.raises(ValueError, match="the least that can be had"):
            winolab.conv_forward(x, w, padding=1, tolerance=1e-4, **wish)
        y = winolab.conv_forward(x, w, padding=1, tolerance=5e-4, **wish).astype(float)
        assert 1e-4 < np.linalg.norm(y - reference) / np.linalg.norm(reference) <= 5e-4


def test_nothing_to_choose_is_no_error() -> None:
    x, w = np.zeros((0, 9, 9, 4), "f4"), np.ones((4, 3, 3, 4), "f4")
    assert winolab.conv_forward(x, w, tolerance=1e-30).shape == (0, 7, 7, 4)
    ones = np.ones((1, 9, 9, 4), int)
    y = winolab.conv_forward(ones, np.ones((4, 3, 3, 4), int), precision="exact", tolerance=1e-9)
    assert (y == 36).all()
    prepared = winolab.prepare_filter(w, (1, 9, 9, 4))
    with pytest.raises(ValueError, match="tolerance 1e-05 and a prepared filter, whose algorithm"):
        winolab.conv_forward(np.ones((1, 9, 9, 4), "f4"), prepared, tolerance=1e-5)


def test_a_filter_is_prepared_with_it() -> None:
    problem = Problem.of((2, 12, 12, 24), (16, 3, 3, 24), padding=1)
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, s).astype("f4") for s in (problem.x_shape, problem.w_shape))
    for tolerance in (1e-5, "componentwise:1e-6"):
        prepared = winolab.prepare_filter(w, x.shape, padding=1, tolerance=tolerance)
        whole = winolab.conv_forward(x, w, padding=1, tolerance=tolerance)
        assert (winolab.conv_forward(x, prepared, padding=1) == whole).all()
    with pytest.raises(ValueError, match="the least that can be had"):
        winolab.prepare_filter(w, x.shape, padding=1, tolerance=1e-30)


def test_winrs_has_no_proven_bound() -> None:
    problem = Problem.of((2, 12, 12, 8), (8, 3, 3, 8), padding=1)
    how = (problem, winolab.winrs(), arithmetic("fp32"), "backward_filter")
    assert incurred("proven", *how) == np.inf
    assert 0 < incurred("predicted", *how) < 1e-5


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_beside_direct_products_the_cheapest_of_so_many_times_their_error(direction) -> None:
    problem = Problem.of((2, 12, 12, 8), (8, 3, 3, 8), padding=1)
    run_in = arithmetic("fp32")
    plain = incurred("predicted", problem, direct(), run_in, direction)
    for times in (1.0, 4.0, 100.0):
        taken = cheapest(Tolerance("direct", times), problem, run_in, direction)
        error = incurred("predicted", problem, taken, run_in, direction)
        assert error <= times * plain * (1 + 1e-9)
        cheaper = [
            a
            for a in usual(problem, direction)
            if cost(problem, a, direction).flops < cost(problem, taken, direction).flops
        ]
        assert all(incurred("direct", problem, a, run_in, direction) > times for a in cheaper)


@pytest.mark.parametrize(
    ("dtype", "size", "tolerance"), [("f4", 1e-20, 1e-6), ("f4", 1e-25, 1e-2), ("f2", 1e-3, 1e-3)]
)
def test_what_underflows_keeps_to_no_tolerance(dtype: str, size: float, tolerance: float) -> None:
    """Such results erred by 1.5e-6, 1 and 6e-3: transforms' products, and results of 16 bits."""
    problem = Problem.of((2, 14, 14, 8), (8, 3, 3, 8), padding=1)
    rng = np.random.default_rng(0)
    x, w = (
        (size * rng.uniform(-1, 1, shape)).astype(dtype)
        for shape in (problem.x_shape, problem.w_shape)
    )
    with pytest.raises(ValueError, match="the least that can be had") as refused:
        run("forward", x, w, problem, tolerance=tolerance)
    least = float(re.findall(r"is ([\d.e+-]+),", str(refused.value))[0])
    y = run("forward", x, w, problem, tolerance=least).astype(float)
    reference = exact("forward", x, w, problem)
    assert np.linalg.norm(y - reference) / np.linalg.norm(reference) <= least


@pytest.mark.parametrize(("size", "seen"), [(1e-19, 1.6e-7), (1e-20, 1.6e-6), (1e-22, 1.6e-2)])
def test_what_a_fourier_transform_loses_to_underflow(size: float, seen: float) -> None:
    problem = Problem.of((2, 14, 14, 8), (8, 3, 3, 8), padding=1)
    rng = np.random.default_rng(0)
    x, w = (
        (size * rng.uniform(-1, 1, shape)).astype("f4")
        for shape in (problem.x_shape, problem.w_shape)
    )
    y = run("forward", x, w, problem, algorithm="fft:16:3").astype(float)
    reference = exact("forward", x, w, problem)
    error = float(np.linalg.norm(y - reference) / np.linalg.norm(reference))
    assert error == pytest.approx(seen, rel=0.1)
    for operands in ((x, w), (Moments.of(x), Moments.of(w))):
        told = expected(*operands, problem, "fft:16:3", "fp32").relative_rms
        assert told / 1.2 <= error <= 1.2 * told


@pytest.mark.parametrize("share", [0.3, 0.03, 0.01])
def test_sparse_data_err_as_predicted(share: float) -> None:
    """With 1% of x not 0 direct sums erred 1.8 times as much as told: right ones were refused."""
    rng = np.random.default_rng(1)
    shape = (1, 40, 40, 8)
    x = (rng.standard_normal(shape) * (rng.random(shape) < share)).astype("f4")
    w = rng.standard_normal((8, 3, 3, 8)).astype("f4")
    problem = Problem.of(x.shape, w.shape)
    y, reference = run("forward", x, w, problem), exact("forward", x, w, problem)
    error = float(np.linalg.norm(y - reference) / np.linalg.norm(reference))
    for told in ((x, w), (Moments.of(x), Moments.of(w))):
        assert expected(*told, problem, direct(), "fp32").relative_rms == pytest.approx(
            error, rel=0.15
        )
    assert winolab.tolerance(x.shape, w.shape, data=(x, w)).check(y)


@pytest.mark.parametrize("tolerance", ["componentwise:1e-5", "proven:1e-3", "direct:4"])
def test_operands_that_nothing_limits_are_named(tolerance: str) -> None:
    x, w = np.ones((1, 8, 8, 4), "f4"), np.ones((4, 3, 3, 4), "f4")
    w[0, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match=f"tolerance {tolerance[:4]}.*: w holds NaN or infinity"):
        winolab.conv_forward(x, w, tolerance=tolerance)
