"""Invariants of partitions: dy is covered exactly once, and every segment has work."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.algorithm import Problem, Tile
from winolab.ref.algorithms.winrs.gradient import clipped
from winolab.ref.algorithms.winrs.kernels import Kernel, Pair
from winolab.ref.algorithms.winrs.plan import plan
from winolab.ref.algorithms.winrs.segments import Shape, cut, least_size, shape

FIGURE_3 = Pair(Kernel(Tile(3, 6)), 4, Kernel(Tile(3, 2)), 2)


@st.composite
def layers(draw):
    """Layers of one to three dimensions with stride 1; large enough for many segments."""
    ndim = draw(st.integers(1, 3))
    f = draw(st.sampled_from([2, 3, 4, 5, 6, 7, 8, 9]))
    taps = (*(draw(st.integers(1, 5)) for _ in range(ndim - 1)), f)
    pads = [draw(st.integers(0, t)) for t in taps]
    outputs = [draw(st.integers(1, 40)) for _ in taps]
    sizes = [max(1, o + t - 1 - 2 * p) for o, t, p in zip(outputs, taps, pads, strict=True)]
    channels = draw(st.sampled_from([1, 3, 64, 512]))
    return Problem.of(
        (draw(st.integers(1, 64)), *sizes, channels), (channels, *taps, channels), padding=pads
    )


@given(layers(), st.integers(1, 60) | st.none(), st.booleans())
@settings(deadline=None, max_examples=150)
def test_plans_keep_their_invariants(problem: Problem, wanted: int | None, any_alpha: bool) -> None:
    made = plan(problem, "rtx4090", segments=wanted, admissible=not any_alpha)
    covered = np.zeros(problem.output, dtype=int)
    for s in made.segments:
        covered[tuple(slice(a, a + n) for a, n in zip(s.start, s.size, strict=True))] += 1
        assert s.size[-1] % s.tile.r == 0
        assert problem.filter[-1] % s.tile.n == 0
        for d, size in enumerate(s.size[:-1]):
            assert size >= least_size(problem, d)
    assert (covered == 1).all()
    assert 1 <= len(made.segments) <= math.prod(problem.output)
    assert made.workspace == 4 * (len(made.segments) - 1) * math.prod(problem.w_shape)


@given(layers())
@settings(deadline=None, max_examples=50)
def test_every_segment_has_work_for_every_tap(problem: Problem) -> None:
    """No zero segment, unless padding alone meets a tap in the whole of dy."""
    for s in plan(problem, segments=8).segments:
        for taps in np.ndindex(*problem.filter[:-1]):
            whole = [
                max(0, min(o, lo - t + i) - max(0, lo - t))
                for o, i, (lo, _), t in zip(
                    problem.output, problem.input, problem.padding, taps, strict=False
                )
            ]
            if all(whole) and all(
                i >= o for i, o in zip(problem.input, problem.output, strict=True)
            ):
                assert all(map(len, clipped(problem, s, taps)))


def test_figure_3() -> None:
    """Nine segments of dy 28 wide: widths 12, 12 and 4, of Ω8(3,6), Ω8(3,6) and Ω4(3,2)."""
    problem = Problem.of((8, 28, 28, 64), (64, 3, 3, 64), padding=1)
    segments = cut(problem, FIGURE_3, Shape((3,), 2))
    assert [s.size[-1] for s in segments] == [12, 12, 4] * 3
    assert [i for i, s in enumerate(segments) if s.tile == Tile(3, 2)] == [2, 5, 8]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (1, Shape((1,), 4)),  # line 2: one segment
        (12, Shape((2,), 1)),  # line 3: ⌊56·28/(12·6)⌋ = 21 rows
        (2, Shape((1,), 2)),  # line 4: two whole columns
        (3, Shape((1,), 2)),  # line 6: x = 2 divides 4 units, ⌊56·28/(3·2·6)⌋ = 43 rows
    ],
)
def test_algorithm_2(wanted: int, expected: Shape) -> None:
    problem = Problem.of((8, 56, 28, 64), (64, 3, 3, 64), padding=1)
    assert shape(problem, FIGURE_3, wanted) == expected


def test_heights_differ_by_at_most_one() -> None:
    problem = Problem.of((8, 29, 28, 64), (64, 3, 3, 64), padding=1)
    heights = {s.size[0] for s in cut(problem, FIGURE_3, Shape((3,), 2))}
    assert heights == {9, 10}
    edges = sorted({s.start[0] for s in cut(problem, FIGURE_3, Shape((3,), 2))})
    assert all(b - a in heights for a, b in pairwise(edges))


def test_segments_smaller_than_the_padding_are_refused() -> None:
    problem = Problem.of((8, 28, 28, 64), (64, 7, 3, 64), padding=((3, 3), (1, 1)))
    assert problem.output == (28, 28)
    with pytest.raises(ValueError, match=r"smaller than its padding 3 plus one; at most 7"):
        cut(problem, FIGURE_3, Shape((8,), 2))
