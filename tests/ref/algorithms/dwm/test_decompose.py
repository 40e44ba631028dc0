import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import winolab
from winolab.algorithm import Problem, parse_algorithm
from winolab.ref.algorithms.dwm.decompose import decomposition
from winolab.ref.arithmetic.simulated import Exact


@st.composite
def cases(draw, most=6):
    """(x, w, keywords of conv_forward, dwm) of one to ``most`` dimensions, small integers."""
    ndim = draw(st.integers(1, most))
    largest = {1: 12, 2: 7, 3: 5}.get(ndim, 3)
    filter_ = [draw(st.integers(1, largest)) for _ in range(ndim)]
    stride = [draw(st.integers(1, 4)) for _ in range(ndim)]
    dilation = [draw(st.integers(1, 4 if ndim < 4 else 2)) for _ in range(ndim)]
    padding = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(ndim)]
    extra = {1: 9, 2: 5, 3: 2}.get(ndim, 1)
    sizes = [
        max(1, d * (f - 1) + 1 - sum(p)) + draw(st.integers(0, extra))
        for f, d, p in zip(filter_, dilation, padding, strict=True)
    ]
    groups = draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    x = rng.integers(-9, 10, (draw(st.integers(1, 2)), *sizes, groups))
    w = rng.integers(-9, 10, (groups * draw(st.integers(1, 2)), *filter_, 1))
    piece = [draw(st.integers(1, 4)) for _ in range(ndim)]
    tile = [draw(st.integers(1, 4)) for _ in range(ndim)]
    keywords = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return x, w, keywords, winolab.dwm(piece, tile)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_every_direction_is_direct_convolution(case):
    x, w, keywords, algorithm = case
    run: dict[str, Any] = dict(keywords, precision="exact")
    y = winolab.conv_forward(x, w, **run)
    assert np.array_equal(winolab.conv_forward(x, w, algorithm=algorithm, **run), y)
    dy = np.arange(y.size).reshape(y.shape) % 7 - 3
    dx = winolab.conv_backward_data(dy, w, x.shape, **run)
    assert np.array_equal(
        winolab.conv_backward_data(dy, w, x.shape, algorithm=algorithm, **run), dx
    )
    dw = winolab.conv_backward_filter(x, dy, w.shape, **run)
    assert np.array_equal(
        winolab.conv_backward_filter(x, dy, w.shape, algorithm=algorithm, **run), dw
    )


@settings(max_examples=20, deadline=None)
@given(cases(most=3))
def test_gradients_are_adjoint(case):
    """⟨y, dy⟩ = ⟨x, dx⟩ = ⟨w, dw⟩, exactly, with no oracle."""
    x, w, keywords, algorithm = case
    run: dict[str, Any] = dict(keywords, precision="exact", algorithm=algorithm)
    y = winolab.conv_forward(x, w, **run)
    dy = np.arange(y.size).reshape(y.shape) % 5 - 2
    product = (y * dy).sum()
    assert (x * winolab.conv_backward_data(dy, w, x.shape, **run)).sum() == product
    assert (w * winolab.conv_backward_filter(x, dy, w.shape, **run)).sum() == product


@dataclass(frozen=True, eq=False)
class Counting(Exact):
    """Exact arithmetic that counts the multiplications of its matrix products.

    Each one is itself alone: a call that is kept for an equal precision would count there.
    """

    seen: list = field(default_factory=list)
    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other

    def matmul(self, a, b):
        self.seen.append(math.prod(a.shape) * b.shape[-1])
        return super().matmul(a, b)


@settings(max_examples=30, deadline=None)
@given(cases(most=4))
def test_multiplications_done_are_multiplications_stated(case):
    x, w, keywords, algorithm = case
    problem = Problem.of(x.shape, w.shape, **keywords)
    stated = decomposition(problem, algorithm)
    y = np.ones(problem.y_shape, dtype=int)
    for direction, (a, b) in {
        "forward": (x, w),
        "backward_data": (y, w),
        "backward_filter": (x, y),
    }.items():
        shape = {"backward_data": (x.shape,), "backward_filter": (w.shape,)}.get(direction, ())
        run = Counting()
        function = getattr(winolab, f"conv_{direction}")
        function(a, b, *shape, **keywords, precision=run, algorithm=algorithm)
        assert sum(run.seen) == stated.multiplications(direction)


def test_text_round_trips():
    for algorithm in (winolab.dwm(), winolab.dwm((3, 2), 4), winolab.dwm(3, 2, points="best")):
        assert parse_algorithm(str(algorithm)) == algorithm
    assert str(winolab.dwm()) == "dwm:3:2"
    assert parse_algorithm("dwm:3x2:4") == winolab.dwm((3, 2), (4, 4))


def test_errors_say_what_is_possible():
    with pytest.raises(ValueError, match="expected at least 1"):
        winolab.dwm(0)
    with pytest.raises(ValueError, match="expected at least 1"):
        winolab.dwm(3, (2, 0))
    with pytest.raises(ValueError, match="2 piece and 3 tile sizes; expected as many"):
        winolab.dwm((3, 3), (2, 2, 2))
    with pytest.raises(ValueError, match="has the form 'dwm:3:2'"):
        parse_algorithm("dwm:3")
    with pytest.raises(ValueError, match="give one piece and tile, or 1"):
        winolab.conv_forward(np.ones((1, 9, 1)), np.ones((1, 3, 1)), algorithm="dwm:3x3:2x2")
    with pytest.raises(ValueError, match="spans 5 inputs"):
        winolab.conv_forward(np.ones((1, 4, 1)), np.ones((1, 5, 1)), algorithm="dwm:3:2")


@pytest.mark.parametrize(("n", "r"), [(2, 2), (2, 3), (4, 3)])
def test_gradients_of_one_tile_are_equation_6(n, r):
    """∇d = B[(G g) ⊙ (A ∇y)] and ∇g = Gᵀ[(A ∇y) ⊙ (BT d)], which the engine gathers instead."""
    t = winolab.transforms(n, r, "paper")
    AT, G, BT = (np.array(m, dtype=object) for m in (t.AT, t.G, t.BT))
    d, g, dy = (np.arange(1, 1 + size) ** 2 % 11 - 4 for size in (n + r - 1, r, n))
    run: dict[str, Any] = {"precision": "exact", "algorithm": winolab.dwm(r, n)}
    x, w, y = d.reshape(1, -1, 1), g.reshape(1, -1, 1), dy.reshape(1, -1, 1)
    dx = winolab.conv_backward_data(y, w, x.shape, **run)
    assert (dx.ravel() == BT.T.dot(G.dot(g) * AT.T.dot(dy))).all()
    dw = winolab.conv_backward_filter(x, y, w.shape, **run)
    assert (dw.ravel() == G.T.dot(AT.T.dot(dy) * BT.dot(d))).all()


def test_fp32_error_is_that_of_direct():
    """DWM, tables 1 and 2: F(2, 3) and F(2, 2) lose next to nothing, however large the filter."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((1, 20, 20, 16)).astype(np.float32)
    w = rng.standard_normal((8, 9, 9, 16)).astype(np.float32)
    exact = winolab.conv_forward(x, w, precision="fp64", out_dtype=np.float64)

    def rms(algorithm):
        y = winolab.conv_forward(x, w, algorithm=algorithm)
        return np.sqrt(np.mean((y - exact) ** 2))

    assert rms("dwm:3:2") <= 1.5 * rms("direct")
    assert rms("winograd:2x2:9x9@paper") >= 30 * rms("direct")


def test_a_decomposition_takes_the_algorithms_text():
    problem = Problem.of((1, 9, 9, 1), (1, 5, 5, 1))
    assert decomposition(problem, "dwm:3:2") == decomposition(problem, winolab.dwm(3, 2))
    with pytest.raises(ValueError, match="gamma:8:6:3 cuts no filters"):
        decomposition(problem, "gamma:8:6:3")


def test_a_decomposition_checks_its_arguments():
    problem: Any = 3
    with pytest.raises(TypeError, match="problem is of type int; expected a Problem"):
        decomposition(problem, "dwm:3:2")
    layer = Problem.of((1, 8, 2), (3, 3, 2))
    with pytest.raises(ValueError, match="direction 'sideways'; expected one of forward"):
        decomposition(layer, "dwm:3:2", direction="sideways")
