"""Exact and mpmath arithmetic."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.ref.arithmetic.exact import Exact, Mp
from winolab.ref.arithmetic.simulated import arithmetic


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.fractions(max_denominator=50), min_size=6, max_size=6),
    st.lists(st.integers(-(10**20), 10**20), min_size=6, max_size=6),
)
def test_exact_matmul_is_exact(p, q):
    exact = Exact()
    a = exact.asarray(np.array(p, object).reshape(2, 3))
    b = exact.asarray(np.array(q, object).reshape(3, 2))
    y = exact.matmul(a, b)
    for i, j in np.ndindex(2, 2):
        assert y[i, j] == sum(a[i, k] * b[k, j] for k in range(3))


def test_exact_carriers():
    exact = Exact()
    x = exact.asarray(np.array([0.1, 3.0]))
    assert x[0] == Fraction(0.1)
    assert x[1] == 3
    assert exact.asarray(np.array([2**63 - 1]))[0] == 2**63 - 1
    huge = np.array([Fraction(1, 3), 10**400, -(10**400), Fraction(1, 10**400)], object)
    assert np.array_equal(exact.to_float64(huge), [1 / 3, np.inf, -np.inf, 0])
    assert exact.fma(exact.constant(Fraction(1, 3)), x[1], 1) == 2
    empty = exact.matmul(np.empty((2, 0), object), np.empty((0, 3), object))
    assert np.array_equal(exact.to_float64(empty), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="exact arithmetic on NaN or infinity"):
        exact.asarray([np.nan])


def test_mpmath_agrees_with_exact_and_keeps_its_context_private():
    before = mpmath.mp.prec
    mp, exact = arithmetic("mp:120"), Exact()
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 50)), rng.standard_normal((50, 4)) * 2.0**300
    y = mp.to_float64(mp.matmul(mp.asarray(a), mp.asarray(b)))
    reference = exact.to_float64(exact.matmul(exact.asarray(a), exact.asarray(b)))
    assert np.array_equal(y, reference)  # 67 spare bits: both round the same sum
    assert mpmath.mp.prec == before
    third = mp.constant(Fraction(1, 3))
    assert abs(third * 3 - 1) < 2.0**-118
    assert mp.to_float64(mp.fma(third, mp.asarray([3.0]), mp.asarray([-1.0])))[0] != 0
    special = mp.matmul(mp.asarray([[np.inf, 1.0]]), mp.asarray([[1.0], [1.0]]))
    assert mp.to_float64(special)[0, 0] == np.inf
    assert Mp(24).asarray(np.array([1 + 2.0**-24]))[0] == 1
    assert mp.asarray(np.array([Fraction(1, 3)], object))[0] == third
