"""What arrays may hold, and the exact value of each element."""

from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

from winolab.ref.arithmetic.elements import number, reals


class Level(IntEnum):
    HIGH = 3


SIXTY = Fraction(1) + Fraction(1, 2**60)
VALUES: list[tuple[Any, int | Fraction]] = [
    (np.int8(-100), -100),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (Level.HIGH, 3),
    (10**30, 10**30),
    (Fraction(6, 3), 2),
    (0.1, Fraction(0.1)),
    (-0.0, 0),
    (5e-324, Fraction(1, 2**1074)),
    (np.float16(2**-24), Fraction(1, 2**24)),
    (np.float32(0.1), Fraction(13421773, 2**27)),
    (np.longdouble(1) + np.longdouble(2) ** -60, SIXTY),
    (np.longdouble(2) ** 13000, 2**13000),
    (ml_dtypes.bfloat16(1.5), Fraction(3, 2)),
    (ml_dtypes.float8_e4m3fn(448), 448),
    (ml_dtypes.int4(-8), -8),
    (Decimal("0.1"), Fraction(1, 10)),
    (Decimal("1e30"), 10**30),
    (Decimal("0e999999999"), 0),
    (mpmath.MPContext().mpf("0.75"), Fraction(3, 4)),
    (mpmath.mpf(0), 0),
]


@pytest.mark.parametrize(("element", "value"), VALUES, ids=lambda v: str(v)[:20])
def test_elements_have_their_value_whatever_their_type(element: Any, value: Any) -> None:
    found = number(element)
    assert found == value
    assert type(found) in (int, Fraction)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_what_is_not_finite_is_a_float(text: str) -> None:
    for make in (float, np.float32, np.longdouble, ml_dtypes.bfloat16, Decimal, mpmath.mpf):
        found = number(make(text))
        assert type(found) is float
        assert str(found) == text


@pytest.mark.parametrize(
    "wrong",
    [None, "1", b"1", True, np.True_, 1j, np.complex64(1), mpmath.mpc(1), np.timedelta64(1, "s"),
     np.datetime64(1, "s"), [1], np.array(1.0), mpmath.iv.mpf(1)],
    ids=repr,
)  # fmt: skip
def test_elements_that_are_no_numbers_are_named(wrong: Any) -> None:
    x = np.full((2, 3), Fraction(1, 3), object)
    x[1, 2] = wrong
    with pytest.raises(TypeError, match=r"x\[1, 2\] is .*; expected a real number: int, Fraction"):
        reals(x, "x")


@pytest.mark.parametrize("long", [Decimal("1e999999999"), mpmath.mpf(2) ** -(10**9)], ids=repr)
def test_exponents_are_bounded(long: Any) -> None:
    with pytest.raises(ValueError, match=r"x\[0\] is .*; expected at most 1048576 bits"):
        reals(np.array([long], object), "x")


REFUSED = ["?", "c16", "U3", "S3", "V4", "M8[s]", "m8[s]", [("a", "f4")], np.dtypes.StringDType()]


@pytest.mark.parametrize("dtype", REFUSED, ids=str)
def test_types_that_hold_no_numbers_are_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"x has dtype .*; expected numbers: integers, floats"):
        reals(np.empty(2, dtype), "x")


ACCEPTED = ["i1", "u8", "f2", "g", ">f4", ">i8", "int4", "uint2"]
ACCEPTED += ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"]


@pytest.mark.parametrize("dtype", ACCEPTED)
def test_types_of_numbers_are_accepted_in_the_machines_byte_order(dtype: str) -> None:
    x = np.ones(3).astype(getattr(ml_dtypes, dtype, dtype))
    found = reals(x)
    assert found.dtype.isnative
    assert [number(v) for v in found] == [1, 1, 1]
