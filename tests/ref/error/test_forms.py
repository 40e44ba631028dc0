"""Second-order forms of one dimension against direct computation."""

from fractions import Fraction

import numpy as np
import pytest

from winolab.algorithm import Tile
from winolab.ref.algebra.program import program
from winolab.ref.algebra.transforms import transforms
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.forms import Axis, _trace, bilinear, powers


def test_powers_and_bilinear_forms_give_second_moments():
    rng = np.random.default_rng(0)
    form = rng.integers(-2, 3, (3, 4)).astype(float)
    w, x = (rng.choice([0.0, 2.0], (200_000, k)) for k in (3, 4))  # mean 1, variance 1
    value = np.einsum("sa,ab,sb->s", w, form, x)
    assert np.mean(value**2) == pytest.approx(bilinear(form, form).sum(), rel=0.02)
    assert np.mean((x @ form[0]) ** 2) == pytest.approx(powers(form)[0].sum(), rel=0.02)


@pytest.mark.parametrize("scaling", [None, "l1"])
def test_tables_of_a_tile(scaling):
    exact = transforms(4, 3, "paper", scaling)
    axis = Axis(Tile(4, 3), exact.programs, arithmetic("fp32"))
    at, g, bt = (np.array(m, float) for m in (exact.AT, exact.G, exact.BT))
    gain = (at**2 * (g**2).sum(axis=1) * (bt**2).sum(axis=1)).sum(axis=1)
    assert axis.state[:, 0, 0] == pytest.approx(gain)
    assert np.array_equal(axis.whole[0], [[3, 3], [3, 9]])
    # constants such as 1/6 and 1/24 are rounded, in mpmath they are not
    assert axis.error is not None
    assert 0 < np.abs(axis.error).max() < 2.0**-20
    assert Axis(Tile(4, 3), exact.programs, arithmetic("mp:100")).error is None


def test_roundings_of_a_transform_are_counted():
    """F(2,3): BT has four additions, no two on one path; each output meets some of them."""
    axis = Axis(Tile(2, 3), transforms(2, 3, "paper").programs, arithmetic("fp32"))
    direct = np.zeros((2, 2, 2))
    at, g, bt = axis.at, axis.g, axis.bt
    for i in range(4):
        direct += np.einsum("o,w,x->owx", at[:, i] ** 2, powers(g[i]), powers(bt[i]))
    assert axis.inputs == pytest.approx(direct)


def test_powers_of_two_round_what_the_format_does_not_hold():
    """2a and a − b: products by 2 are exact of the format's own numbers alone."""
    made = program(((Fraction(2), Fraction(0)), (Fraction(1), Fraction(-1))))
    for held, rounded in ((True, 1), (False, 2)):
        values, slopes = _trace(made, True, held)
        assert np.count_nonzero(values.any(axis=1)) == rounded
        assert np.count_nonzero(slopes.any(axis=0)) == rounded


def test_tables_are_means_over_what_lies_inside():
    """Half of the tiles have their first two inputs outside, and of all the last output is cut."""
    exact = transforms(2, 3, "paper").programs
    mask = np.array([0.0, 0.0, 1.0, 1.0])
    edges, kept = [(0.5, np.ones(4)), (0.5, mask)], np.array([1.0, 0.0])
    axis = Axis(Tile(2, 3), exact, arithmetic("fp32"), edges, kept)
    whole = Axis(Tile(2, 3), exact, arithmetic("fp32"))
    assert axis.inside.tolist() == [0.5, 0.5, 1, 1]
    assert axis.taps.tolist() == [2, 2.5]
    assert axis.all_outputs[0, 0, 0] == 2
    assert axis.of_bt == pytest.approx((whole.of_bt + powers(whole.bt * mask)) / 2)
