from fractions import Fraction

import pytest

from winolab.arguments.factors import INFINITY, Factor, as_factor, karatsuba_states
from winolab.points import parse_points, text_of, tile_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x^2+1", "x^2+1"),
        (" x**2 - 1/2*x + 3/4 ", "x^2-1/2*x+3/4"),
        ("4x^2+1", "x^2+1/4"),  # monic
        ("1+x^2-0.5x", "x^2-1/2*x+1"),
        ("x", "0"),
        ("(2x-1)", "1/2"),
        ("x^2", "x^2"),
        ("(x)^2", "x^2"),
        ("(x-1/2)^2", "(x-1/2)^2"),
        ("(x^2+1)^2", "(x^2+1)^2"),
        ("inf^1", "inf"),
        ("oo^3", "inf^3"),
        ("x^4-10*x^2+1", "x^4-10*x^2+1"),  # irreducible, though reducible modulo every prime
        ("x^2-2", "x^2-2"),
        # Complex points, with their conjugates.
        ("i", "x^2+1"),
        ("-i", "x^2+1"),
        ("1/2-3/2i", "x^2-x+5/2"),
        # With the product of their ring.
        ("x^2+1[0:1:oo]", "x^2+1[0:1:inf]"),
        ("x^2+1[direct]", "x^2+1[direct]"),
        ("x^2+x+1[0: 1: inf]BT", "x^2+x+1[0:1:inf]BT"),
        ("x^4+1[0:1:inf:x^2+1[0:-1:inf]:i+1]", "x^4+1[0:1:inf:x^2+1[0:-1:inf]:x^2-2*x+2]"),
    ],
)
def test_texts_of_factors_have_one_form(text: str, expected: str) -> None:
    assert text_of(text if "i+1" not in text else text.replace("i+1", "1+i")) == expected
    assert text_of(expected) == expected
    assert parse_points([as_factor(expected)]) == parse_points(expected)


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("x^2+1", 3),
        ("x^2+1[direct]", 4),
        ("x^2", 3),
        ("x^3", 5),
        ("x^3[direct]", 6),
        ("inf^3[direct]", 6),
        ("x^3-x-1", 5),
        ("x^3-x-1[karatsuba]", 6),
        ("x^4+1", 7),
        ("x^4+1[karatsuba]", 9),
        ("x^4+1[0:1:-1:2:inf:x^2+1]", 8),
        ("(x^2+1)^2[direct]", 16),
    ],
)
def test_states_of_a_factor(text: str, states: int) -> None:
    factor = as_factor(text)
    assert isinstance(factor, Factor)
    assert factor.states == states
    points = ",".join([text, "1", "-3"])
    assert tile_of(factor.degree, 3, points).alpha == states + 2


def test_karatsubas_products() -> None:
    assert [karatsuba_states(n, n) for n in (1, 2, 3, 4, 6, 8, 16)] == [1, 3, 6, 9, 18, 27, 81]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x^2-1", r"factor x\^2-1 is reducible; give what it is made of: x[+-]1,x[+-]1$"),
        ("x^2+2x+1", r"is reducible; give what it is made of: \(x\+1\)\^2$"),
        ("x^4+4", r"made of: x\^2\+2\*x\+2,x\^2-2\*x\+2$|made of: x\^2-2\*x\+2,x\^2\+2\*x\+2$"),
        ("x^3-1/8", "is reducible; give what it is made of"),
        ("(x^2-1)^2", r"made of: \(x[+-]1\)\^2,\(x[+-]1\)\^2$"),
        ("x^4+2*x^2+1", r"made of: \(x\^2\+1\)\^2$"),
        ("i,x^2+1", r"factor x\^2\+1 is repeated; give its power once, such as \(x\^2\+1\)\^2"),
        ("0,x^2", "factor x is repeated"),
        ("x^2+1[0:1]", "multiplies 2 terms by 2 modulo degree 2; expected points and factors of "
         "degree 3, or direct or karatsuba"),
        ("x^2+1[0:1:1]", "point 1 is repeated"),
        ("x[0:1:2]", "is a point, of one product; leave out the brackets"),
        ("3*x^0", "is a constant"),
        ("x^2+", "is no polynomial over the rationals; expected a text such as"),
        ("x^2+y", "is no polynomial"),
        ("1/0*x+1", "is no polynomial"),
        ("x^99+1", "has degree 99; expected at most 12"),
        ("x^1000+1", "has degree 1000; expected at most 12"),
        ("0,1,Inf", 'such as "-1/2"; infinity is written inf'),
        ("(x+1)^0", "has power 0; expected at least 1"),
        ("x^2+1[]", "names no products"),
        ("x^2+1[direct", "is not a rational number"),
        ("x^2+1" + "0" * 30, "more than 20 digits"),
        ("x^2+1" + "+0" * 10**6, "is too long"),
    ],
)  # fmt: skip
def test_what_is_no_factor_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        parse_points(text)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 220


def test_factors_beside_points() -> None:
    found = parse_points([0, Fraction(1, 2), "x^2+1", INFINITY])
    assert found == (
        Fraction(0),
        Fraction(1, 2),
        Factor((Fraction(1), Fraction(0), Fraction(1))),
        INFINITY,
    )
