from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.harness.facts import facts, matrices, papers
from winolab.algorithm import MAX_ALPHA, SCALINGS
from winolab.ref.algebra.points import INFINITY
from winolab.ref.algebra.transforms import Transforms, prove, transforms
from winolab.ref.arithmetic import rational

PRINTED = [
    (paper, name)
    for paper in papers()
    for name, entry in facts(paper).get("matrices", {}).items()
    if "BT" in entry
]

rationals = st.builds(Fraction, st.integers(-9, 9), st.integers(1, 5))


@st.composite
def tiles_and_points(draw, most=9):
    alpha = draw(st.integers(1, most))
    r = draw(st.integers(1, alpha))
    infinity = draw(st.booleans())
    finite = draw(st.lists(rationals, min_size=alpha, max_size=alpha, unique=True))
    return alpha - r + 1, r, (*finite[: alpha - infinity], *[INFINITY] * infinity)


@pytest.mark.parametrize(("paper", "name"), PRINTED)
def test_every_printed_matrix_is_ours_up_to_row_scaling(paper, name):
    entry = matrices(paper, name)
    printed = Transforms(entry["AT"], entry["G"], entry["BT"])
    assert transforms(entry["tile"][0], entry["tile"][1], entry["points"]).equivalent(printed)


def test_printed_matrices_include_the_named_equations():
    expected = {
        ("lavin_gray_2016", "eq7"),
        ("lavin_gray_2016", "eq14"),
        ("lavin_gray_2016", "eq15"),
        ("opencnn_2021", "eq3"),
        ("dwm_2021", "eq7"),
        ("dwm_2021", "eq8"),
    }
    assert expected <= set(PRINTED)


def test_monic_rows_are_lavin_and_gray_equation_15_exactly():
    entry = matrices("lavin_gray_2016", "eq15")
    t = transforms(4, 3, "paper")
    assert (entry["AT"], entry["G"], entry["BT"]) == (t.AT, t.G, t.BT)


def test_winrs_figure_8_by_its_rule():
    """Rows 2k+1 and 2k+2 of A, G and DT: equal at even columns, opposite at odd ones."""
    entry = facts("winrs_2025")["matrices"]["figure8"]
    t = transforms(entry["tile"][0], entry["tile"][1], entry["points"])
    for rows in (tuple(zip(*t.AT, strict=True)), t.G, t.BT):
        for k in range((t.alpha - 2) // 2):
            first, second = rows[2 * k + 1], rows[2 * k + 2]
            scale = {
                (-1) ** c * b / a for c, (a, b) in enumerate(zip(first, second, strict=True)) if a
            }
            assert len(scale) == 1
            assert abs(scale.pop()) == 1


def test_winrs_element_at_alpha_16():
    t = transforms(8, 9, "paper")
    assert Fraction(164597, 576) in {abs(v) for row in t.BT for v in row}


@pytest.mark.parametrize("alpha", range(1, MAX_ALPHA + 1))
@pytest.mark.parametrize("points", ["best", "paper", "wincnn"])
def test_named_sets_serve_every_alpha(alpha, points):
    r = (alpha + 1) // 2
    t = transforms(alpha - r + 1, r, points)
    assert t.alpha == alpha == len(t.points)


@settings(max_examples=60, deadline=None)
@given(tiles_and_points(), st.sampled_from((None, *SCALINGS)))
def test_any_distinct_rational_points_give_convolution(case, scaling):
    """On random integer data, beside the constructor's proof."""
    n, r, points = case
    t = transforms(n, r, points, scaling)
    g = [Fraction(3 * k * k - 7) for k in range(r)]
    d = [Fraction(5 * k * k * k - k - 2, 3) for k in range(n + r - 1)]
    u = [sum(a * b for a, b in zip(row, g, strict=True)) for row in t.G]
    v = [sum(a * b for a, b in zip(row, d, strict=True)) for row in t.BT]
    y = [sum(a * p * q for a, p, q in zip(row, u, v, strict=True)) for row in t.AT]
    assert y == [sum(g[k] * d[i + k] for k in range(r)) for i in range(n)]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scalings_only_scale_rows(scaling):
    plain, scaled = transforms(6, 3, "paper"), transforms(6, 3, "paper", scaling)
    assert plain.equivalent(scaled)
    if scaling == "filter":
        assert scaled.BT == plain.BT
    for rows in (scaled.G,) if scaling == "filter" else (scaled.G, scaled.BT):
        for norm in (sum(map(abs, row)) for row in rows):
            if scaling == "l1":
                assert norm == 1
            else:
                assert Fraction(1, 2) <= norm**2 <= 2


def test_power_of_two_scaling_multiplies_by_powers_of_two():
    plain, scaled = transforms(8, 9, "paper"), transforms(8, 9, "paper", "power_of_two")
    for before, after in zip(plain.BT, scaled.BT, strict=True):
        ratio = next(b / a for a, b in zip(before, after, strict=True) if a)
        assert ratio.numerator.bit_count() == ratio.denominator.bit_count() == 1


@pytest.mark.parametrize("of_flint", [True, False], ids=["flint", "python"])
def test_a_wrong_entry_is_refused(of_flint: bool, monkeypatch: pytest.MonkeyPatch):
    """Also one that makes coefficients far longer than those of the others."""
    module = pytest.importorskip("flint") if of_flint else None
    monkeypatch.setattr(rational, "flint", module)
    t = transforms(4, 3, "paper")
    for wrong in (1, -1, 10**40, Fraction(-1, 10**40)):
        for which in range(3):
            for i in range(t.alpha):
                made = [[list(row) for row in rows] for rows in (t.AT, t.G, t.BT)]
                row = made[which][i % len(made[which])]
                row[i % len(row)] += wrong
                with pytest.raises(ValueError, match="not a convolution: the coefficient of"):
                    prove(*(tuple(map(tuple, rows)) for rows in made))


def test_a_wrong_shape_is_refused():
    t = transforms(4, 3, "paper")
    with pytest.raises(ValueError, match="BT is not 6 × 6"):
        prove(t.AT, t.G, t.BT[:-1])


@pytest.mark.parametrize(
    ("n", "r", "points", "scaling", "message"),
    [
        (2, 3, "0,1,-1", None, "3 points given; expected alpha = n \\+ r - 1 = 4"),
        (2, 3, "0,1,-1,2,inf", None, "5 points given; expected alpha"),
        (2, 3, "0,1,1,inf", None, "point 1 is repeated"),
        (2, 3, "0,1,y,inf", None, "'y' is not a rational"),
        (2, 3, "0,1,x,inf", None, "point 0 is repeated"),
        (2, 3, "0,1,1/0,inf", None, "'1/0' is not a rational"),
        (2, 3, "nearest", None, "unknown points 'nearest'; expected one of best, paper, wincnn"),
        (2, 3, None, "l2", "unknown scaling 'l2'; expected one of none, power_of_two, filter, l1"),
        (30, 4, None, None, "at most 32"),
        (0, 3, None, None, "at least one output"),
    ],
)
def test_bad_arguments_are_refused(n, r, points, scaling, message):
    with pytest.raises(ValueError, match=message):
        transforms(n, r, points, scaling)


def test_inexact_points_are_refused():
    with pytest.raises(TypeError, match=r"point 0\.1 is not an exact number"):
        transforms(2, 3, (0, 1, 0.1, INFINITY))


def test_sizes_are_integers():
    with pytest.raises(TypeError, match=r"n is 2\.0; expected an integer"):
        transforms(2.0, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="r is '3'; expected an integer"):
        transforms(2, "3")  # pyright: ignore[reportArgumentType]
    n, r = np.array([2, 3])
    assert transforms(n, r) is transforms(2, 3)


def test_no_scaling_has_a_name():
    assert transforms(4, 3, scaling="none") == transforms(4, 3)


@pytest.mark.parametrize(
    ("matrices", "error", "message"),
    [
        # Issue 42: a float, which is named, and nothing.
        (([[1]], [[0.5]], [[2]]), TypeError, r"G\[0\]\[0\] is 0\.5; expected an exact number"),
        (([], [], []), ValueError, "AT is empty"),
        (([[1]], [[]], [[1]]), ValueError, r"G\[0\] is empty"),
        (([[1]], [[1]], [["1"]]), TypeError, r"BT\[0\]\[0\] is '1'; expected an exact number"),
        (([[1]], [1], [[1]]), TypeError, r"G\[0\] is 1; expected a list"),
        ((1, [[1]], [[1]]), TypeError, "AT is 1; expected a list"),
        (([[1], [1, 0]], [[1]], [[1]]), ValueError, r"AT\[1\] has 2 numbers and AT\[0\] 1"),
        (([[1]], [[1]], [[1]], (0, 1)), ValueError, r"2 points given; expected alpha .* = 1"),
        (([[1]], [[1]], [[1]], (0.5,)), TypeError, "point 0.5 is not an exact number"),
    ],
)
def test_matrices_are_exact(matrices, error, message):
    with pytest.raises(error, match=message):
        Transforms(*matrices)


def test_matrices_of_numpys_integers_are_proved_in_pythons():
    t = transforms(2, 2, (0, 16, INFINITY))
    AT, BT = (np.array([[int(v) for v in row] for row in m], np.int16) for m in (t.AT, t.BT))
    made = Transforms(AT, t.G, BT, (np.int8(0), np.int8(16), np.inf))  # type: ignore[arg-type]
    assert made == t
    assert {type(v.numerator) for row in (*made.AT, *made.BT) for v in row} == {int}
