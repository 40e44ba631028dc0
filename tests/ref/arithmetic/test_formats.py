"""Rounding against NumPy, ml_dtypes and mpmath; exhaustively for 8- and 16-bit formats."""

from fractions import Fraction

import ml_dtypes
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.ref.arithmetic.formats import FORMAT_OF, FORMATS, Format, format_named

NATIVE = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
}


def values(name):
    """Every value of an 8- or 16-bit format, NaN included, as float64."""
    native = np.dtype(NATIVE[name])
    codes = np.arange(1 << 8 * native.itemsize, dtype=f"u{native.itemsize}")
    with np.errstate(invalid="ignore"):
        return codes.view(native).astype(np.float64)


def same(a, b):
    """Equal values, zeros of equal sign, NaN in the same places."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    number = ~np.isnan(a)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(
        np.signbit(a[number]), np.signbit(b[number])
    )


def adversarial(name):
    """The values, the midpoints of neighbours, and the FP32 numbers on both sides of those."""
    finite = np.sort(values(name)[np.isfinite(values(name))])
    fmt = FORMATS[name]
    beyond = fmt.max + (fmt.max - np.unique(finite)[-2]) * np.array([0.25, 0.5, 0.75, 1, 2])
    points = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, beyond, -beyond])
    with np.errstate(over="ignore", under="ignore"):
        points = points.astype(np.float32)
        below, above = np.nextafter(points, -np.inf), np.nextafter(points, np.inf)
    return np.concatenate([points, below, above]).astype(np.float64)


@pytest.mark.parametrize("name", NATIVE)
def test_every_value_is_its_own_rounding(name):
    x = values(name)
    for mode in ("nearest", "truncate"):
        assert same(FORMATS[name].round(x, mode), x)
    assert FORMATS[name].max == np.max(x[np.isfinite(x)])
    assert FORMATS[name].smallest_subnormal == np.min(x[x > 0])


@pytest.mark.parametrize("name", NATIVE)
def test_midpoints_round_as_the_native_type_does(name):
    x = adversarial(name)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        native = x.astype(np.float32).astype(NATIVE[name]).astype(np.float64)
    assert same(FORMATS[name].round(x), native)


@pytest.mark.parametrize("name", NATIVE)
def test_truncation_takes_the_nearest_value_towards_zero(name):
    x = adversarial(name)
    x = x[np.isfinite(x)]
    sizes = np.unique(np.abs(values(name)[np.isfinite(values(name))]))
    expected = sizes[np.searchsorted(sizes, np.abs(x), side="right") - 1]
    assert same(FORMATS[name].round(x, "truncate"), np.copysign(expected, x))


@pytest.mark.parametrize("name", NATIVE)
def test_fractions_round_as_floats_do(name):
    x = adversarial(name)
    x = x[np.isfinite(x)][:: 1 if "8" in name else 97]
    fmt = FORMATS[name]
    expected = fmt.round(x) + 0.0  # a Fraction has no negative zero
    assert np.array_equal([fmt.round_fraction(Fraction(v)) + 0.0 for v in x], expected, True)


def test_fp32_rounds_as_numpy_does():
    rng = np.random.default_rng(0)
    single = rng.integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32)
    single = single[np.isfinite(single)].astype(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        ties = single + np.spacing(single.astype(np.float32)).astype(np.float64) / 2
        x = rng.integers(0, 1 << 64, 100_000, dtype=np.uint64).view(np.float64)
        sides = [np.nextafter(ties, 0), np.nextafter(ties, np.inf)]
        x = np.concatenate([single, ties, *sides, x, [np.inf, -np.inf, np.nan, 0.0, -0.0]])
        assert same(FORMATS["fp32"].round(x), x.astype(np.float32).astype(np.float64))


@settings(deadline=None, max_examples=200)
@given(st.floats(allow_nan=False, allow_infinity=False, width=64), st.integers(2, 51))
def test_any_precision_rounds_as_mpmath_does(x, precision):
    context = mpmath.MPContext()
    context.prec = precision
    fmt = Format("wide", precision, -1022, 1022)
    expected = float(+context.mpf(x))
    if abs(x) >= 2.0**-1022 and abs(expected) < 2.0**1023:  # mpmath's exponents are unbounded
        assert same(fmt.round(x), expected)
        assert fmt.round_fraction(Fraction(x)) == expected


@pytest.mark.parametrize("name", ["fp32", "tf32", "bf16", "fp16", "fp8_e5m2", "fp8_e4m3"])
def test_wide_integers_and_longdouble_round_once(name):
    """On a tie but for a bit that FP64 drops; and below and beyond what FP64 holds."""
    fmt = FORMATS[name]
    tie, beside = (1 << 62) + (1 << 62 - fmt.precision), 1
    for dtype in (np.int64, np.uint64, np.longdouble, object):
        up = fmt.nearest(np.array([tie + beside, tie - beside, tie]).astype(dtype))
        if fmt.emax > 62:
            assert up.tolist() == [2.0**62 * (1 + 2.0 ** (1 - fmt.precision)), 2.0**62, 2.0**62]
        else:
            assert not np.isfinite(up).any()
    far = np.array([-1, 1], np.longdouble) * np.longdouble(2) ** np.array([[-9000], [9000]])
    for x in (
        far,
        np.array([[Fraction(-1, 2**9000), Fraction(1, 2**9000)], [-(2**9000), 2**9000]]),
    ):
        y = fmt.nearest(x)
        infinite = np.inf if fmt.infinities else np.nan
        assert same(y, [[-0.0, 0.0], [-infinite, infinite]])


def test_a_dtype_has_its_format():
    for dtype, fmt in FORMAT_OF.items():
        info = ml_dtypes.finfo(dtype) if dtype != np.longdouble else np.finfo(dtype)
        assert (fmt.precision, fmt.emin) == (info.nmant + 1, info.minexp)
        if dtype != np.longdouble:
            assert fmt.max == info.max


def test_unknown_names_are_refused():
    assert format_named("bfloat16") is FORMATS["bf16"]  # a dtype's name means its format
    with pytest.raises(ValueError, match="did you mean 'bf16'"):
        format_named("bff16")
    with pytest.raises(ValueError, match="unknown rounding mode 'up'"):
        FORMATS["fp16"].round([1.0], "up")
