"""Elements in, numbers out: exact between, rounded once at the end, whatever the types."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab import Problem, conv_backward_filter, conv_forward, parse_algorithm, prepare_filter
from winolab.measure import Case
from winolab.ref.algorithms import winograd
from winolab.ref.arithmetic.simulated import Exact, arithmetic
from winolab.ref.error.metrics import bound, compare, predict
from winolab.ref.kinds.registry import ENGINES

FLOATS = {
    np.dtype(t): bits
    for t, bits in (
        (np.float64, 53), (np.float32, 24), (np.float16, 11), (ml_dtypes.bfloat16, 8),
        (ml_dtypes.float8_e5m2, 3), (ml_dtypes.float8_e4m3fn, 4), (np.longdouble, 64),
    )
}  # fmt: skip
INTEGERS = [np.dtype(t) for t in ("i1", "u1", "i4", "i8", "u8", ml_dtypes.int4)]


def objects(*values: Any) -> np.ndarray:
    """A (1, width, 1) array of these very objects."""
    x = np.empty((1, len(values), 1), object)
    for i, value in enumerate(values):
        x[0, i, 0] = value
    return x


def through(values: np.ndarray, out_dtype: Any, precision: str = "exact", **how: Any) -> Any:
    """What comes of one element, convolved with 1."""
    return conv_forward(values, objects(1), precision=precision, out_dtype=out_dtype, **how)[
        0, 0, 0
    ]


def value(v: Any) -> Fraction:
    return Fraction(*v.as_integer_ratio()) if hasattr(v, "as_integer_ratio") else Fraction(float(v))


@np.errstate(all="ignore")
def bracket(q: Fraction, dtype: np.dtype) -> tuple[Any, Any]:
    """Neighbours low ≤ q ≤ high of the type, within its finite numbers or just outside."""
    one = dtype.type
    if dtype == np.longdouble:
        most = np.finfo(one).max
        exponent = q.numerator.bit_length() - q.denominator.bit_length() - 62
        low = np.ldexp(one(int(q / Fraction(2) ** exponent)), exponent)
    else:
        most = one(ml_dtypes.finfo(dtype).max)
        low = one(float(min(q, value(most))))
    while not np.isfinite(low) or value(low) > q:
        low = np.nextafter(low, one(-1))
    high = low
    while np.isfinite(high) and value(high) < q:
        low, high = high, np.nextafter(high, most) if high < most else one(np.inf)
    return low, high


@np.errstate(all="ignore")
def nearest(q: Fraction, dtype: np.dtype) -> float | Any:
    """By comparing distances: q's neighbour in the type, ties to the even multiple of their gap."""
    size = abs(q)
    low, high = bracket(size, dtype)
    below = value(low)
    gap = value(high) - below if np.isfinite(high) else below - value(np.nextafter(low, low * 0))
    twice = 2 * (size - below)
    up = twice > gap or (twice == gap and gap and (below / gap) % 2 == 1)
    found = high if up else low
    return -found if q < 0 else found


@st.composite
def hard(draw: Any, dtype: np.dtype) -> Fraction:
    """A number on, beside or far from a tie of the type, subnormal or beyond its range too."""
    bits, info = FLOATS[dtype], ml_dtypes.finfo(dtype if dtype != np.longdouble else np.float64)
    low, high = int(info.minexp) - bits - 2, int(info.maxexp) + 1
    exponent = draw(st.one_of(st.integers(low, high), st.sampled_from([low + 2, high - 1])))
    whole = 2 * draw(st.integers(2 ** (bits - 1), 2**bits - 1)) + draw(st.integers(0, 1))
    beside = Fraction(draw(st.integers(-1, 1)), 2 ** draw(st.sampled_from([3, 40, 90])))
    sign = draw(st.sampled_from([1, -1]))
    return sign * (whole + beside) * Fraction(2) ** (exponent - bits)


def element(draw: Any, q: Fraction) -> Any:
    """q in one of the types that hold it."""
    kinds: list[Any] = [q]
    if q.denominator == 1:
        kinds.append(int(q))
        kinds += [d.type(int(q)) for d in INTEGERS[:5] if within(q, d)]
    for dtype in FLOATS:
        if (near := nearest(q, dtype)) == near and np.isfinite(near) and value(near) == q:
            kinds.append(near)
    if abs(q) < 2**300:
        context: Any = mpmath.MPContext()
        context.prec = 5000
        kinds.append(context.mpf(q.numerator) / q.denominator)
        kinds.append(Decimal(q.numerator) if q.denominator == 1 else q)
    return draw(st.sampled_from(kinds))


def within(q: Fraction, dtype: np.dtype) -> bool:
    limits = ml_dtypes.iinfo(dtype)
    return limits.min <= q <= limits.max


HOW = [({"algorithm": "direct"}, [1]), ({"algorithm": "gamma:4:3:2"}, [Fraction(1), np.int8(0)])]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_elements_of_any_type_leave_rounded_once(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(sorted(FLOATS, key=str)))
    q = data.draw(hard(dtype))
    x = objects(*[element(data.draw, q) for _ in range(4)])
    precision = data.draw(st.sampled_from(["exact", "mp:3000"]))
    how, taps = data.draw(st.sampled_from(HOW))
    wanted = dtype
    if dtype.kind == "f" and dtype.itemsize > 1 and data.draw(st.booleans()):
        wanted = dtype.newbyteorder(">")
    with np.errstate(all="raise"):
        y = conv_forward(x, objects(*taps), precision=precision, out_dtype=wanted, **how)
    assert y.dtype == wanted
    expected = nearest(q, dtype)
    for found in y.reshape(-1):
        assert np.array_equal(dtype.type(found), expected, equal_nan=True)
        assert np.isnan(expected) or np.signbit(found) == np.signbit(expected)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_elements_of_any_type_are_stored_rounded_once(data: st.DataObject) -> None:
    """Arrays of integers and longdouble, and objects, in simulated formats."""
    name, dtype = data.draw(
        st.sampled_from([("fp16", np.float16), ("bf16", ml_dtypes.bfloat16), ("fp32", np.float32),
                         ("fp8_e5m2", ml_dtypes.float8_e5m2)])
    )  # fmt: skip
    dtype = np.dtype(dtype)
    q = data.draw(hard(dtype))
    x = objects(element(data.draw, q))
    kind = data.draw(st.sampled_from([np.dtype(object), *FLOATS, *INTEGERS]))
    if kind in INTEGERS:
        q = data.draw(
            st.integers(*map(int, (ml_dtypes.iinfo(kind).min, ml_dtypes.iinfo(kind).max)))
        )
        x = np.array([[[q]]], object).astype(np.int64 if q < 2**63 else np.uint64).astype(kind)
    elif kind in FLOATS:
        x = np.array([[[nearest(q, kind)]]], kind)
        q = value(x[0, 0, 0]) if np.isfinite(x[0, 0, 0]) else None
    if q is not None:
        y = through(x, np.float64, f"fp32,storage={name}", algorithm="direct")
        assert np.array_equal(dtype.type(y), nearest(Fraction(q), dtype), equal_nan=True)


@pytest.mark.parametrize("precision", ["exact", "mp:200"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_types_hold_what_they_hold_and_nothing_else(dtype: Any, precision: str) -> None:
    limits = ml_dtypes.iinfo(dtype)
    for whole in (limits.min, 0, limits.max):
        assert through(objects(Fraction(whole)), dtype, precision) == whole
    for other in (limits.min - 1, limits.max + 1, Fraction(1, 2), Fraction(7, 2), 10**400):
        out = np.full((1, 1, 1), 5, dtype)
        with pytest.raises(ValueError, match=rf"y\[0, 0, 0\] is .*, which {dtype} does not hold"):
            conv_forward(objects(other), objects(1), precision=precision, out=out)
        assert out[0, 0, 0] == 5
    if precision != "exact":
        with pytest.raises(ValueError, match="is nan, which"):
            through(objects(np.nan), dtype, precision)


def test_the_numbers_of_issue_42() -> None:
    """Item 1, 3 and 4: the very inputs, and what they are exactly."""
    x = objects(*np.array([100, -100, -100, 100], np.int8))
    y = conv_forward(x, objects(1, 2, 3), precision="exact", algorithm="gamma:4:2:3")
    assert y.ravel().tolist() == [-400, 0]
    x, w = objects(*map(Fraction, range(1, 7))), objects(*[Fraction(1, 10**24)] * 3)
    y = conv_forward(x, w, precision="exact", algorithm="gamma:3:2:2")
    assert y[0, 0, 0] == Fraction(3, 5 * 10**23)
    sixty = np.longdouble(1) + np.longdouble(2) ** -60
    long = np.array([[[sixty], [np.longdouble("1e4000")]]])
    for precision in ("exact", "mp:200"):
        y = conv_forward(long, objects(1), precision=precision, out_dtype=object)
        assert y[0, 0, 0] - 1 == Fraction(1, 2**60)
        assert conv_forward(long, objects(1), precision=precision, out_dtype="g").tolist() == (
            long.tolist()
        )
        q = objects(1 + Fraction(1, 2**24) + Fraction(1, 2**60))
        assert through(q, np.float32, precision) == 1 + 2.0**-23
        assert through(objects(1 + Fraction(1, 2**8) + Fraction(1, 2**60)), ml_dtypes.bfloat16,
                       precision) == 1 + 2.0**-7  # fmt: skip
        assert through(objects(3 * Fraction(1, 2**1075) + Fraction(1, 2**1200)), float, precision
                       ) == 2.0**-1073  # fmt: skip
        assert through(objects(10**400), float, precision) == np.inf
        assert through(objects(-(10**400)), np.float16, precision) == -np.inf
        with pytest.raises(ValueError, match=r"is -1(\.0)?, which uint8 does not hold"):
            through(objects(-1), np.uint8, precision)
    narrow = np.array([[[1 + 2.0**-8 + 2.0**-40]]])
    assert conv_forward(narrow, np.ones((1, 1, 1)), out_dtype=ml_dtypes.bfloat16) == 1 + 2.0**-7


def test_a_prepared_filter_holds_numbers() -> None:
    w: Any = objects(np.int8(100), "1")
    with pytest.raises(TypeError, match=r"w\[0, 1, 0\] is '1'; expected a real number"):
        prepare_filter(w, (1, 3, 1), precision="exact")
    w[0, 1, 0] = 1.5
    held = prepare_filter(w, (1, 3, 1), precision="exact", algorithm="gamma:4:3:2")
    y = conv_forward(objects(*np.array([100, 100, 100], np.int8)), held, precision="exact")
    assert y.ravel().tolist() == [10150, 10150]


@pytest.mark.parametrize("algorithm", ["direct", "winograd:2x2:3x3", "gamma:4:2:3", "dwm:3:2"])
def test_nan_in_one_image_leaves_the_bits_of_others(algorithm: str) -> None:
    """Item 5: sums of products are exact and rounded once beside what is not finite."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 6, 6, 8)), rng.standard_normal((2, 3, 3, 8))
    how: dict[str, Any] = {"algorithm": algorithm, "precision": "mp:30", "out_dtype": float}
    alone = conv_forward(x, w, **how)
    for wrong in (np.nan, np.inf):
        x[0, 0, 0, 0] = wrong
        y = conv_forward(x, w, **how)
        assert (y[1] == alone[1]).all()
        assert not np.isfinite(y[0, 0, 0]).any()
        assert (y[0, -1, -1] == alone[0, -1, -1]).all()


def test_results_are_given_in_listed_types() -> None:
    x, w = np.ones((1, 3, 1), np.float32), np.ones((1, 1, 1), np.float32)
    strings = np.full((1, 3, 1), "2.0", np.dtypes.StringDType())
    with pytest.raises(TypeError, match=r"x has dtype StringDType\(\); expected numbers"):
        conv_forward(strings, strings[:, :1], precision="fp64")
    for wrong in ("V4", [("a", "f4")], "?", "c16", np.dtypes.StringDType(), "m8[s]"):
        with pytest.raises(TypeError, match=r"out_dtype is .*; expected numbers: bfloat16, "):
            conv_forward(x, w, out_dtype=wrong)
        out = np.zeros(x.shape, wrong)
        with pytest.raises(TypeError, match=r"out has dtype .*; expected numbers: bfloat16, "):
            conv_forward(x, w, out=out)
        assert (out == np.zeros(x.shape, wrong)).all()
    with pytest.raises(TypeError, match="out_dtype is 'float31'; expected a dtype, such as"):
        conv_forward(x, w, out_dtype="float31")
    with pytest.raises(TypeError, match="out has dtype float32 and out_dtype is float64"):
        conv_forward(x, w, out=np.empty_like(x), out_dtype=float)


def test_small_floats_and_either_byte_order_are_numbers() -> None:
    x = np.array([1, -2, 3.0]).reshape(1, 3, 1)
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.int4, ">f4", ">i2"):
        for precision in ("exact", "fp32", "fp64"):
            y = conv_forward(x.astype(dtype), np.ones((1, 1, 1)), precision=precision)
            assert (y.astype(float) == x).all()
    swapped = x.astype(">f4")
    y = conv_forward(swapped, np.ones((1, 1, 1), ">f4"))
    assert y.dtype == np.float32
    assert (y == x).all()
    assert conv_forward(swapped, objects(1), precision="fp32", out=swapped) is swapped
    assert (swapped == x).all()


def test_what_overflows_float16_is_found_in_exact_numbers() -> None:
    one = objects(1)
    how: dict[str, Any] = {"precision": "exact", "out_dtype": np.float16, "on_range": "raise"}
    below = objects(65520 - Fraction(1, 10**30))
    assert conv_backward_filter(below, one, (1, 1, 1), **how) == 65504
    for largest, shown in ((65520, "65520"), (10**400, r"1.79769e\+308")):
        with pytest.raises(ValueError, match=f"dw reaches {shown}, and float16 holds"):
            conv_backward_filter(objects(largest), one, (1, 1, 1), **how)


ALGORITHMS = ["direct", "winograd:3x3:2x2", "dwm:3:2", "fft:8", "omega:8:3:6", "winrs"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("precision", ["fp64", "fp32", "bf16", "fp32_split"])
def test_results_do_not_depend_on_what_numpy_is_told_to_raise(
    algorithm: str, precision: str
) -> None:
    """Calls that narrow the result, and engines called by themselves, as accuracy does."""
    rng = np.random.default_rng(0)
    chosen, run, shape = parse_algorithm(algorithm), arithmetic(precision), (2, 3, 3, 2)
    problem = Problem.of((1, 9, 9, 2), shape)
    for size in (2.0**-140, 2.0**120, np.inf, 1e-300):
        x, dy = (rng.choice([-1, 1], s) * size for s in ((1, 9, 9, 2), (1, 7, 7, 2)))
        how: dict[str, Any] = {"algorithm": algorithm, "precision": precision}
        plain = conv_backward_filter(x, dy, shape, out_dtype=np.float16, **how)
        with np.errstate(all="raise"):
            strict = conv_backward_filter(x, dy, shape, out_dtype=np.float16, **how)
            engine = ENGINES[chosen.kind].backward_filter(x, dy, problem, chosen, run)
        assert np.array_equal(plain, strict, equal_nan=True)
        assert engine.shape == shape


def test_exact_numbers_are_finite_where_no_tile_reads_them_too() -> None:
    x = np.array([1, np.nan, 3, np.inf]).reshape(1, 4, 1)
    for values in (x, x.astype(object), x.astype("g")):
        with pytest.raises(ValueError, match="exact arithmetic on NaN or infinity"):
            conv_forward(values, objects(1), stride=2, precision="exact")
        assert through(values, float, "mp:60") == 1


def test_no_engine_meets_what_numpy_is_told_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SimpleNamespace(forward=lambda x, w, problem, *_: np.ones(problem.y_shape) / x[:, :2])
    monkeypatch.setitem(ENGINES, "gamma", engine)
    with np.errstate(all="raise"):
        y = conv_forward(np.zeros((1, 4, 1)), np.ones((1, 3, 1)), algorithm="gamma:4:2:3")
    assert np.isposinf(y).all()


def test_accuracy_does_not_depend_on_what_numpy_is_told_to_raise() -> None:
    case = Case("gamma:8:6:3", "1x9x9x2", "2x3x3", "0", "fp16", "u12", sample="full")
    with np.errstate(all="raise"):
        strict = case.measure()
    plain = case.measure()
    assert {**strict, "seconds": 0} == {**plain, "seconds": 0}


def test_bounds_of_exact_numbers() -> None:
    x, w = objects(Fraction(1, 3), np.int8(2), Decimal("0.1")), objects(1, Fraction(1, 10**400))
    problem, run = Problem.of(x.shape, w.shape), arithmetic("fp32")
    limit = bound(x, w, problem, parse_algorithm("direct"), run)
    y = winograd.forward(x, w, problem, parse_algorithm("direct"), run)
    exact = conv_forward(x, w, precision="exact")
    error = conv_forward(exact - Exact().asarray(y), objects(1), precision="exact", out_dtype=float)
    assert (np.abs(error) <= limit).all()
    assert compare(y, exact, limit).worst_ratio <= 1


def test_predictions_of_exact_numbers() -> None:
    """Objects count as the numbers that they are; no number is named, whatever float() reads."""
    x, w = objects(Fraction(1, 3), np.int8(100), Decimal("0.1")), objects(1, np.longdouble(3))
    how: Any = (Problem.of(x.shape, w.shape), parse_algorithm("gamma:3:2:2"), arithmetic("fp32"))
    found: Any = predict(x, w, *how)
    same: Any = predict(x.astype(float), w.astype(float), *how)
    assert found.relative_rms == same.relative_rms > 0
    assert np.array_equal(found.errors, same.errors)
    x[0, 2, 0] = "0.1"
    with pytest.raises(TypeError, match=r"\[2\] is '0.1'; expected a real number"):
        predict(x, w, *how)


def test_a_scale_serves_either_byte_order() -> None:
    x, w = (np.full((1, 3, 1), 0.1, "f4") for _ in range(2))
    how: dict[str, Any] = {"precision": "fp32_split", "scale": "8:9"}
    y = conv_forward(x, w, **how)
    assert (conv_forward(x.astype(">f4"), w.astype(">f4"), **how) == y).all()
