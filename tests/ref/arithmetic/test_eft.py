"""FP64 with a single rounding against Fractions, at all exponents."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.ref.arithmetic.eft import fma64, odd_add, two_sum_error
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import arithmetic


def numbers(precision, exponents):
    """Floats of at most that many bits."""
    signed = st.tuples(st.integers(1, (1 << precision) - 1), st.sampled_from([1, -1]), exponents)
    return signed.map(lambda v: math.ldexp(v[0] * v[1], v[2] - v[0].bit_length() + 1))


@settings(deadline=None, max_examples=150)
@given(
    numbers(53, st.integers(-1022, 1020)),
    numbers(53, st.integers(-1022, 1020)),
    numbers(53, st.integers(-1022, 1020)),
)
def test_fp64_fma_at_extreme_exponents(a, b, c):
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    y = arithmetic("fp64").fma(np.float64(a), np.float64(b), np.float64(c))
    assert y == FORMATS["fp64"].round_fraction(exact)


@settings(deadline=None, max_examples=150)
@given(numbers(53, st.integers(-60, 60)), numbers(53, st.integers(-60, 60)))
def test_odd_addition_sets_the_last_bit_of_inexact_sums(a, b):
    x, y = np.array([a]), np.array([b])
    exact, odd = Fraction(a) + Fraction(b), odd_add(x, y)
    assert Fraction(float(two_sum_error(x, y, x + y)[0])) == exact - Fraction(a + b)
    if Fraction(a + b) == exact:
        assert odd[0] == a + b
    else:
        assert odd.view(np.int64)[0] & 1
        assert abs(Fraction(float(odd[0])) - exact) < Fraction(float(np.spacing(abs(odd[0]))))


def test_long_arrays_are_cut_into_chunks():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 5000))
    exact = [
        FORMATS["fp64"].round_fraction(Fraction(x) * Fraction(y) - 1)
        for x, y in zip(a, b, strict=True)
    ]
    assert np.array_equal(fma64(a, b, -np.ones(5000)), exact)
