"""The search for moduli: its gain is the matrices', optima are what is known, rationals near."""

from __future__ import annotations

import numpy as np
import pytest

from winolab.points import tile_of
from winolab.ref.algebra.transforms import transforms
from winolab.ref.error.metrics import noise_gain
from winolab.ref.records.frontier import Structure, gain, optimum, search, structures


@pytest.mark.parametrize(
    ("n", "r", "factors", "points"),
    [
        (4, 3, ([0, 2 / 3, -2 / 3, 1.5, -1.5], []), "0,2/3,-2/3,3/2,-3/2,inf"),
        (6, 3, ([0, 0.75, -0.75, 1.25, -1.25], [(0, 2)]), "0,3/4,-3/4,5/4,-5/4,inf,x^2+2"),
        (5, 4, ([0, 1, -1], [(1, 1), (-1, 1)]), "0,1,-1,inf,x^2+x+1,x^2-x+1"),
    ],
)
def test_the_gain_is_that_of_the_matrices(n: int, r: int, factors: tuple, points: str) -> None:
    found = gain(n, r, np.array(factors[0], float), np.array(factors[1], float).reshape(-1, 2))
    states = tile_of(n, r, points).alpha
    assert found == pytest.approx(noise_gain(f"gamma:{states}:{n}:{r}@{points}"), rel=1e-9)


@pytest.mark.parametrize(("n", "known"), [(8, 112.7), (10, 703)])
def test_optima_are_those_known(n: int, known: float) -> None:
    """Continuous optima of r = 3 with 0 and infinity, to the digits that they were stated with."""
    found, _ = optimum(n, 3, Structure(zero=1, pairs=n // 2))
    assert found == pytest.approx(known, rel=2e-3)


def test_structures_have_the_states_and_the_degree_asked() -> None:
    for n, r, more in ((6, 3, 0), (6, 3, 1), (6, 5, 2), (8, 9, 3)):
        found = [*structures(n, r, n + r - 1 + more)]
        assert found
        assert {(s.degree, s.states) for s in found} == {(n + r - 1, n + r - 1 + more)}
    assert not [*structures(2, 2, 9)]
    assert not [*structures(6, 3, 7)]


@pytest.mark.parametrize(
    ("n", "r", "states"), [(2, 3, 4), (2, 2, 4), (4, 5, 8), (6, 3, 9), (3, 5, 9)]
)
def test_rationals_are_near_the_optimum_and_convolve(n: int, r: int, states: int) -> None:
    found = [f for s in structures(n, r, states) for f in search(n, r, s, seed=1)]
    best = min(found, key=lambda f: f.gain)
    assert best.optimum <= best.gain <= 1.05 * best.optimum
    assert transforms(n, r, best.points).alpha == states
