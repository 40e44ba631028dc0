"""Exact arithmetic over integers: what each operation by itself gives, with FLINT and without."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.algorithm import Problem, parse_algorithm
from winolab.ref.algorithms import winograd
from winolab.ref.arithmetic import rational
from winolab.ref.arithmetic.exact import Exact

ALGORITHMS = (
    "direct", "gamma:8:6:3", "winograd:4x4:3x3@paper", "winograd:2x6:3x3@0,1,-1,inf,1/3+i,x^2-2",
)  # fmt: skip
BACKENDS = [pytest.param(False, id="python"), pytest.param(True, id="flint")]


class EachOperation(Exact):
    """Runs the programs themselves, as no subclass of Exact is brought to integers."""


@pytest.fixture(params=BACKENDS)
def flint(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra "exact", whatever the sizes, and without."""
    if request.param:
        monkeypatch.setattr(rational, "flint", pytest.importorskip("flint"))
        monkeypatch.setattr(rational, "TO", 0)
        monkeypatch.setattr(rational, "BACK", 0)
    else:
        monkeypatch.setattr(rational, "flint", None)


@pytest.mark.usefixtures("flint")
@pytest.mark.parametrize("text", ALGORITHMS)
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_every_operation_by_itself_gives_the_same(text: str, direction: str) -> None:
    rng = np.random.default_rng(0)
    problem = Problem.of((2, 9, 11, 4), (4, 3, 3, 2), padding=1, groups=2)
    first = problem.x_shape if direction == "forward" else problem.y_shape
    x = rng.uniform(-1, 1, first)
    w = np.empty(problem.w_shape, object)
    w.reshape(-1)[:] = [Fraction(int(a), int(b)) for a, b in rng.integers(1, 10**6, (w.size, 2))]
    run, algorithm = getattr(winograd, direction), parse_algorithm(text)
    found, expected = (run(x, w, problem, algorithm, of()) for of in (Exact, EachOperation))
    assert (found == expected).all()
    assert {type(v) for v in found.reshape(-1)} <= {int, Fraction}


@pytest.mark.usefixtures("flint")
@settings(max_examples=10, deadline=None)
@given(st.integers(1, 3), st.integers(0, 5), st.integers(1, 4), st.integers(0, 99))
def test_products_of_long_integers(rows: int, depth: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (
        rng.integers(-(2**60), 2**60, shape).astype(object) ** 3
        for shape in ((2, rows, depth), (depth, columns))
    )
    product = rational.matmul(a, b)
    assert product.shape == (2, rows, columns)
    for k, i, j in np.ndindex(2, rows, columns):
        assert product[k, i, j] == sum(int(a[k, i, m]) * int(b[m, j]) for m in range(depth))
