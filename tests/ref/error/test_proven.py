"""Bounds of all algorithms in all directions, of DWM and of FFT convolution above all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.algorithm import Problem, parse_algorithm
from winolab.ref.algorithms import convolution
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.cost.count import cost
from winolab.ref.error.bounds import bound
from winolab.ref.error.metrics import noise_gain
from winolab.ref.error.predict import predict
from winolab.ref.error.proven import proven
from winolab.ref.kinds.registry import ENGINES

DIRECTIONS = ("forward", "backward_data", "backward_filter")


def _tensors(problem: Problem, direction: str, rng: np.random.Generator, low: float):
    shapes = {
        "forward": (problem.x_shape, problem.w_shape),
        "backward_data": (problem.y_shape, problem.w_shape),
        "backward_filter": (problem.x_shape, problem.y_shape),
    }[direction]
    return [rng.uniform(low, 1, s).astype("float32") for s in shapes]


@settings(deadline=None, max_examples=12)
@given(
    st.sampled_from(
        [
            ("dwm:3:2", "fp32", 2),
            ("dwm:3:4", "bf16", 1),
            ("dwm:2:3", "fp16", 2),
            ("fft:8:3", "fp32", 1),
            ("fft:16:4", "fp32", 1),
            ("fft:16:3", "tf32", 1),
        ]
    ),
    st.sampled_from(DIRECTIONS),
    st.integers(1, 2),
    st.integers(0, 1 << 20),
)
def test_errors_stay_below_the_bound(case, direction: str, groups: int, seed: int) -> None:
    text, precision, stride = case
    rng = np.random.default_rng(seed)
    problem = Problem.of(
        (2, *(int(v) for v in rng.integers(6, 20, 2)), 4),
        (6, *(int(v) for v in rng.integers(2, 6, 2)), 4 // groups),
        padding=int(rng.integers(0, 3)),
        stride=stride,
        groups=groups,
    )
    algorithm, run = parse_algorithm(text), arithmetic(precision)
    a, b = (run.to_float64(run.asarray(v)).astype("float32")
            for v in _tensors(problem, direction, rng, float(rng.integers(-1, 1))))  # fmt: skip
    got = run.to_float64(getattr(ENGINES[algorithm.kind], direction)(a, b, problem, algorithm, run))
    exact = getattr(convolution, direction)(a, b, problem)
    limit = proven(a, b, problem, algorithm, run, direction=direction)
    assert limit.shape == exact.shape
    assert np.isfinite(limit).all()
    assert (np.abs(got - exact) <= limit).all()


# In one dimension or two, with the taps that they serve: of any number, or these.
SERVED = {
    "direct": None,
    "winograd:2x2:3x3": (3, 3),
    "winograd:3:2": (2,),
    "gamma:8:6:3": 3,
    "dwm:3:2": None,
    "dwm:2:3": None,
    "fft:8:3": None,
    "fft:16:4": None,
    "omega:4:3:2": 3,
    "omega:8:3:6;segments=3": 3,
    "winrs": 3,
    "winrs;segments=4": 3,
}


@st.composite
def served(draw, text: str) -> tuple[str, Problem]:
    """A direction that the algorithm serves and a small problem."""
    kind, taps = parse_algorithm(text).kind, SERVED[text]
    directions = {"omega": DIRECTIONS[2:], "winrs": DIRECTIONS[2:], "gamma": DIRECTIONS[:2]}
    direction = draw(st.sampled_from(directions.get(kind, DIRECTIONS)))
    ndim = len(taps) if isinstance(taps, tuple) else draw(st.integers(1, 2))
    filter_ = [draw(st.integers(1, 3)) for _ in range(ndim)]
    if isinstance(taps, int):
        filter_[-1] = taps
    elif taps:
        filter_ = list(taps)
    sizes = [draw(st.integers(9, 20 if ndim == 1 else 13)) for _ in range(ndim)]
    groups, stride = draw(st.integers(1, 2)), 1
    if kind in ("direct", "dwm"):
        stride = draw(st.integers(1, 2))
    inputs, outputs = (groups * draw(st.integers(1, 3)) for _ in range(2))
    problem = Problem.of(
        (draw(st.integers(1, 2)), *sizes, inputs),
        (outputs, *filter_, inputs // groups),
        padding=draw(st.integers(0, 1)),
        stride=stride,
        groups=groups,
    )
    return direction, problem


@pytest.mark.parametrize("text", SERVED)
@settings(deadline=None, max_examples=15)
@given(
    st.data(),
    st.sampled_from(["fp32", "fp32,fused=no", "tf32", "bf16", "fp16", "fp32_split"]),
    st.sampled_from([-1.0, 0.0]),
    st.integers(0, 1 << 20),
)
def test_no_error_exceeds_a_finite_bound(
    text: str, data: st.DataObject, precision: str, low: float, seed: int
) -> None:
    direction, problem = data.draw(served(text))
    algorithm, run = parse_algorithm(text), arithmetic(precision)
    a, b = _tensors(problem, direction, np.random.default_rng(seed), low)
    got = run.to_float64(getattr(ENGINES[algorithm.kind], direction)(a, b, problem, algorithm, run))
    exact = getattr(convolution, direction)(a, b, problem)
    limit = proven(a, b, problem, algorithm, run, direction=direction)
    assert limit.shape == exact.shape
    assert (np.abs(got - exact) <= limit).all()
    if precision == "fp32":
        assert np.isfinite(limit).all() == (algorithm.kind not in ("omega", "winrs"))


@pytest.mark.parametrize("algorithm", ["winrs", "omega:4:3:2", "omega:8:3:6"])
def test_winrs_has_no_bound(algorithm: str) -> None:
    """Its segments and their transforms err by more than direct sums, whose bound is not its."""
    problem = Problem.of((1, 9, 1), (1, 3, 1))
    a, b = _tensors(problem, "backward_filter", np.random.default_rng(1), -1)
    run, chosen = arithmetic("fp32"), parse_algorithm(algorithm)
    limit = proven(a, b, problem, chosen, run, direction="backward_filter")
    assert limit.shape == problem.w_shape
    assert np.isinf(limit).all()
    with pytest.raises(ValueError, match="omega and winrs compute filter gradients only"):
        proven(a, b, problem, chosen, run)


@pytest.mark.parametrize("algorithm", ["direct", "dwm:3:2", "fft:8:3", "winrs", "omega:4:3:2"])
def test_unknown_directions_are_refused(algorithm: str) -> None:
    problem = Problem.of((1, 9, 1), (1, 3, 1))
    a, b = _tensors(problem, "forward", np.random.default_rng(1), -1)
    with pytest.raises(ValueError, match="direction 'up'; expected one of forward"):
        proven(a, b, problem, parse_algorithm(algorithm), arithmetic("fp32"), direction="up")


@pytest.mark.parametrize("algorithm", ["dwm:3:2", "fft:8:3", "gamma:8:6:3"])
def test_algorithms_and_arithmetics_may_be_texts(algorithm: str) -> None:
    """Bounds, predictions and costs take them, as convolutions do."""
    problem = Problem.of((1, 9, 1), (1, 3, 1))
    a, b = _tensors(problem, "forward", np.random.default_rng(1), -1)
    value, run = parse_algorithm(algorithm), arithmetic("fp32")
    assert (proven(a, b, problem, algorithm, "fp32") == proven(a, b, problem, value, run)).all()
    assert cost(problem, algorithm) == cost(problem, value)
    if algorithm == "gamma:8:6:3":
        assert (bound(a, b, problem, algorithm, "fp32") == bound(a, b, problem, value, run)).all()
        named = predict(a, b, problem, algorithm, "fp32")
        meant = predict(a, b, problem, value, run)
        assert named.relative_rms == meant.relative_rms
    with pytest.raises(ValueError, match="unknown algorithm 'gama'"):
        cost(problem, "gama")
    with pytest.raises(ValueError, match="unknown algorithm 'gama'"):
        noise_gain("gama")


def test_uncut_filters_have_the_tiled_algorithms_bound() -> None:
    problem = Problem.of((1, 8, 8, 4), (4, 3, 3, 4))
    rng = np.random.default_rng(3)
    a, b = _tensors(problem, "forward", rng, -1)
    run = arithmetic("fp32")
    one, other = (
        proven(a, b, problem, parse_algorithm(text), run)
        for text in ("dwm:3:2", "winograd:2x2:3x3")
    )
    np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_array_equal(
        other, bound(a, b, problem, parse_algorithm("winograd:2x2:3x3"), run)
    )


def test_what_is_not_proven_is_unbounded() -> None:
    problem = Problem.of((1, 9, 9, 2), (2, 3, 3, 2))
    rng = np.random.default_rng(3)
    a, b = _tensors(problem, "forward", rng, -1)
    for text, precision in (("fft:12:3", "fp32"), ("fft:8:3", "fp32_split"), ("fft:8:3", "fp16")):
        limit = proven(a, b, problem, parse_algorithm(text), arithmetic(precision))
        assert np.isinf(limit).all()
    a[0, 4, 4] = np.nan
    for text in ("dwm:3:2", "fft:8:3"):
        limit = proven(a, b, problem, parse_algorithm(text), arithmetic("fp32"))
        assert np.isinf(limit).any()


@pytest.mark.parametrize("kind", ["dwm:3:2", "fft:8:3"])
def test_zeros_have_next_to_no_error(kind: str) -> None:
    problem = Problem.of((1, 9, 9, 2), (2, 3, 3, 2))
    a, b = np.zeros(problem.x_shape, "float32"), np.ones(problem.w_shape, "float32")
    limit = proven(a, b, problem, parse_algorithm(kind), arithmetic("fp32"))
    assert (limit < 1e-35).all()
