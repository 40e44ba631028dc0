"""Pieces of a DWM as unit-stride problems of views: their sum is the convolution, exactly."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import winolab
from winolab.algorithm import Problem
from winolab.problem import NAMES, shapes
from winolab.ref.algorithms.dwm.parts import parts


@st.composite
def problems(draw) -> Problem:
    """Any stride, dilation, padding and groups in one to three dimensions."""
    ndim = draw(st.integers(1, 3))
    most = [9, 6, 4][ndim - 1]

    def sizes(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=ndim, max_size=ndim))

    taps, stride, dilation = sizes(1, most), sizes(1, 4), sizes(1, 3)
    padding = list(zip(sizes(0, 5), sizes(0, 5), strict=True))
    groups = draw(st.sampled_from([1, 2]))
    size = [
        max(1, d * (r - 1) + 1 - lo - hi) + more
        for r, d, (lo, hi), more in zip(taps, dilation, padding, sizes(0, 4), strict=True)
    ]
    return Problem.of(
        (2, *size, 2 * groups), (groups, *taps, 2),
        stride=stride, dilation=dilation, padding=padding, groups=groups,
    )  # fmt: skip


@settings(max_examples=40)
@given(problems(), st.sampled_from(list(NAMES)), st.sampled_from(["dwm:3:2", "dwm:9:2"]))
def test_the_sum_of_the_parts_is_the_convolution(problem, direction, algorithm) -> None:
    rng = np.random.default_rng(0)
    *operands, of_result = shapes(direction, problem)
    arrays = [rng.integers(-9, 10, shape) for shape in operands]
    found = np.zeros(of_result, np.int64)
    for part in parts(problem, algorithm, direction=direction):
        assert {*part.problem.stride, *part.problem.dilation} == {1}
        assert min(map(min, part.problem.padding)) >= 0
        assert len(part.tiles) == problem.ndim
        first, second, result = ((slice(None), *part.of(name)) for name in NAMES[direction])
        views = arrays[0][first], arrays[1][second]
        found[result] += computed(direction, part.problem, *views)
    assert (found == computed(direction, problem, *arrays)).all()


def computed(direction: str, problem: Problem, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Exactly, as integers."""
    shape = () if direction == "forward" else (shapes(direction, problem)[2],)
    return getattr(winolab, f"conv_{direction}")(
        a, b, *shape, stride=problem.stride, padding=problem.padding, dilation=problem.dilation,
        groups=problem.groups, precision="exact", out_dtype=np.int64,
    )  # fmt: skip
