"""WinRS's reference: exactly direct convolution's filter gradient, whatever the partition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import winolab
from tests.support.problems import integers, options, problems
from winolab.algorithm import Problem, Tile
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.algorithms.winrs import gradient as winrs
from winolab.ref.algorithms.winrs.kernels import TILES, Kernel, Pair
from winolab.ref.algorithms.winrs.segments import Segment, Shape, cut
from winolab.ref.arithmetic.simulated import arithmetic

WIDE = [tile for tile in TILES["fp32"] if tile != Tile(1, 1)]


def gradients(problem: Problem, algorithm: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Direct convolution's gradient and the algorithm's, exactly, on random integers."""
    x, dy = integers(problem.x_shape, seed), integers(problem.y_shape, seed + 1)
    rest = {**options(problem), "precision": "exact"}
    direct = winolab.conv_backward_filter(x, dy, problem.w_shape, algorithm="direct", **rest)
    ours = winolab.conv_backward_filter(x, dy, problem.w_shape, algorithm=algorithm, **rest)
    return direct, ours


FILTERS = st.sampled_from([(2,), (9,), (2, 3), (4, 4), (3, 6), (2, 2, 5)])


@given(
    st.one_of(problems(), FILTERS.flatmap(lambda f: problems(ndim=len(f), filter_=f))),
    st.sampled_from(["", ";segments=2", ";segments=5"]),
    st.integers(0, 9),
)
@settings(deadline=None, max_examples=60)
def test_winrs_is_exactly_direct(problem: Problem, segments: str, seed: int) -> None:
    direct, ours = gradients(problem, "winrs" + segments, seed)
    assert (direct == ours).all()


@pytest.mark.parametrize("tile", WIDE, ids=str)
@pytest.mark.parametrize("rest", [0, 1])
def test_every_kernel_of_figure_6_is_exactly_direct(tile: Tile, rest: int) -> None:
    width = tile.r + rest
    problem = Problem.of((2, 4, width + tile.n - 1, 2), (2, 2, tile.n, 2), padding=((1, 1), (0, 0)))
    direct, ours = gradients(problem, f"omega:{tile.alpha}:{tile.n}:{tile.r};segments=2", rest)
    assert (direct == ours).all()


def test_a_filter_may_hold_several_tiles() -> None:
    problem = Problem.of((1, 3, 19, 2), (2, 2, 6, 2), padding=1)
    direct, ours = gradients(problem, "omega:8:3:6;segments=4", 0)
    assert (direct == ours).all()


def test_an_empty_batch_has_a_gradient_of_zero() -> None:
    problem = Problem.of((0, 8, 8, 2), (2, 3, 3, 2))
    direct, ours = gradients(problem, "winrs", 0)
    assert ours.shape == direct.shape
    assert not ours.any()


def test_buckets_are_summed_by_kahan() -> None:
    """A big bucket and many of half its spacing: a plain FP32 sum never moves, Kahan's does."""
    run = arithmetic("fp32")
    buckets = [np.full(3, 2.0**24, np.float32)] + [np.ones(3, np.float32)] * 64
    assert (winrs.reduce(buckets, run, compensated=False) == 2.0**24).all()
    assert (winrs.reduce(buckets, run) == 2.0**24 + 64).all()


def one_segment(problem: Problem, tile: Tile) -> tuple[Segment, ...]:
    pair = Pair(Kernel(tile), problem.output[-1] // tile.r)
    return cut(problem, pair, Shape((1,) * (problem.ndim - 1), pair.units))


@pytest.mark.parametrize("p", [0, 1, 2, 3])
@pytest.mark.parametrize("f", [3, 5, 7])
@pytest.mark.parametrize("o", [6, 12, 30])
def test_clipping_saves_what_the_paper_says(p: int, f: int, o: int) -> None:
    """p(p+1)/(F·O) with stride 1 and symmetric padding of at most min(F, O) (section 5.1)."""
    size = o + f - 1 - 2 * p
    problem = Problem.of((1, size, o, 1), (1, f, 3, 1), padding=((p, p), (1, 1)))
    segments = one_segment(problem, Tile(3, 6))
    assert winrs.clipped_share(problem, segments) == pytest.approx(p * (p + 1) / (f * o))


def test_figure_7_has_another_percentage_than_its_formula() -> None:
    """A 6 × 6 area with a padding of 1 is a 4 × 4 input; 12.5 % would need F·O = 16.

    F·O with O = 7 − F is 10 or 12, so the formula gives 16.7 % (F = 3) and never 12.5 %.
    """
    problem = Problem.of((1, 4, 4, 1), (1, 3, 3, 1), padding=1)
    segments = one_segment(problem, Tile(3, 2))
    assert winrs.clipped_share(problem, segments) == pytest.approx(1 / 6)
    assert all(2 / (f * (7 - f)) != 0.125 for f in range(1, 7))


def test_clipped_outputs_are_not_computed() -> None:
    """Poison what only padding meets: it must not reach the result."""
    problem = Problem.of((1, 2, 6, 1), (1, 5, 3, 1), padding=((4, 4), (1, 1)))
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal(problem.x_shape), rng.standard_normal(problem.y_shape)
    run = arithmetic("fp64")
    segments = one_segment(problem, Tile(3, 6))
    direct = winolab.conv_backward_filter(x, dy, problem.w_shape, padding=problem.padding)
    ours = winrs.run(x, dy, problem, segments, run, programs_of(winolab.winrs()))
    assert np.abs(direct - ours).max() <= 1e-12 * np.abs(direct).max()
    first = winrs.clipped(problem, segments[0], (0,))
    assert first == (range(4, 6),)


@pytest.mark.parametrize("algorithm", ["omega:8:3:6", "winrs"])
def test_other_directions_are_refused_with_what_serves(algorithm: str) -> None:
    x, w = np.zeros((1, 8, 8, 1)), np.zeros((1, 3, 3, 1))
    with pytest.raises(ValueError, match="filter gradients only; for forward use gamma"):
        winolab.conv_forward(x, w, algorithm=algorithm)
    with pytest.raises(ValueError, match="filter gradients only; for backward data use gamma"):
        winolab.conv_backward_data(x[:, :6, :6], w, x.shape, algorithm=algorithm)


def test_texts_round_trip() -> None:
    for text in (
        "omega:8:3:6", "omega:16:9:8@paper;scaling=l1;segments=4", "winrs",
        "winrs@paper;segments=3;device=rtx4090",
    ):  # fmt: skip
        assert str(winolab.parse_algorithm(text)) == text
    with pytest.raises(ValueError, match="alpha must be"):
        winolab.omega(8, 3, 5)
    with pytest.raises(ValueError, match="at least 1"):
        winolab.winrs(segments=0)
    with pytest.raises(ValueError, match="malformed"):
        winolab.parse_algorithm("omega:8:3")


@pytest.mark.parametrize(
    ("algorithm", "width", "message"),
    [
        ("omega:8:3:6", 4, "multiple of 3"),
        ("omega:3:1:3", 2, "alpha 1, 4, 8, 16 only; choose"),
        ("omega:9:2:8", 2, "alpha 1, 4, 8, 16 only; choose"),
        ("winrs", 11, "no fp32 kernel computes a filter 11 wide"),
        ("winrs;device=rtx9999", 3, "unknown device 'rtx9999'; expected one of"),
    ],
)
def test_what_does_not_fit_is_refused(algorithm: str, width: int, message: str) -> None:
    x, dy = np.zeros((1, 4, 20, 1)), np.zeros((1, 4, 21 - width, 1))
    with pytest.raises(ValueError, match=message):
        winolab.conv_backward_filter(x, dy, (1, 1, width, 1), algorithm=algorithm)
