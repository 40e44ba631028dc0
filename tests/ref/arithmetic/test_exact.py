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


@pytest.mark.parametrize("a", [np.zeros((1, 1)), np.zeros((0, 1))])
def test_zeros_meet_integers_beyond_fp64(a):
    run = Exact()
    y = run.matmul(run.asarray(a), run.asarray(np.array([[10**400]], object)))
    assert y.shape == (len(a), 1)
    assert not y.any()


SPECIAL = st.sampled_from([np.nan, np.inf, -np.inf, 0.0])


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_is_not_finite_reaches_its_own_sums_only(data):
    """Row by column as IEEE has it; all other sums are exact, rounded once."""
    number = st.one_of(st.floats(-(2.0**60), 2.0**60), SPECIAL if data.draw(st.booleans()) else (
        st.just(1.0)))  # fmt: skip
    rows, depth, columns = (data.draw(st.integers(0, 3)) for _ in range(3))
    a, b = (
        np.array(data.draw(st.lists(number, min_size=m * n, max_size=m * n))).reshape(m, n)
        for m, n in ((rows, depth), (depth, columns))
    )
    mp = Mp(40)
    y = mp.matmul(mp.asarray(a), mp.asarray(b))
    assert y.shape == (rows, columns)
    for i, j in np.ndindex(rows, columns):
        left, right = mp.to_float64(mp.asarray(a[i])), mp.to_float64(mp.asarray(b[:, j]))
        with np.errstate(invalid="ignore"):
            total = (left * right).sum()
        if np.isfinite(total):
            pairs = zip(map(Fraction, left), map(Fraction, right), strict=True)
            total = mp.constant(sum(p * q for p, q in pairs))
        assert str(y[i, j]) == str(mp.context.mpf(total))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "longdouble", "int8", object])
def test_whole_numbers_over_a_denominator(dtype):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(300) * 2.0 ** rng.integers(-30, 30, 300)
    few = np.array([0.0, -0.0, 5e-324, 1.7e308, 1.0, 3.0, -0.75])
    with np.errstate(all="ignore"):
        x = np.concatenate([x, few]).astype(dtype)
    x = x[np.isfinite(x.astype(float))].reshape(-1, 1)
    exact = Exact()
    whole, scale = exact.whole(x)
    assert (whole == exact.asarray(x) * scale).all()
    assert {type(v) for v in whole.flat} == {int}
    assert exact.whole(x[:0])[0].shape == (0, 1)


def test_no_whole_number_is_nan():
    with pytest.raises(ValueError, match="exact arithmetic on NaN or infinity"):
        Exact().whole(np.array([1.0, np.nan]))
