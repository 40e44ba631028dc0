"""Operations of every arithmetic against Fractions; fused multiply-adds on adversarial ties."""

import math
import pickle
from dataclasses import replace
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.ref.arithmetic.accumulate import Accumulation
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import PRESETS, Float, Mp, arithmetic
from winolab.ref.arithmetic.split import Power

SIMULATED = {
    "fp64": "fp64",
    "fp32": "fp32",
    "tf32": "fp32,transform=tf32",
    "fp16": "fp16,transform=fp16",
    "bf16": "bf16,transform=bf16",
}


def numbers(precision, exponents):
    """Floats of at most that many bits; few bits or all of them."""
    few = st.sampled_from([1, (1 << precision - 1) + 1, (1 << precision) - 1, 3, 5])
    significand = st.one_of(few, st.integers(1, (1 << precision) - 1))
    signed = st.tuples(significand, st.sampled_from([1, -1]), exponents)
    return signed.map(lambda v: math.ldexp(v[0] * v[1], v[2] - v[0].bit_length() + 1))


@pytest.mark.parametrize("fmt", SIMULATED)
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_operations_round_once(fmt, data):
    f = FORMATS[fmt]
    wide = {"fp64": 60, "fp32": 60, "tf32": 60}.get(fmt, 13 if fmt == "fp16" else 60)
    exponents = st.one_of(st.integers(-3, 3), st.integers(-wide, wide), st.just(f.emin))
    a, b = (f.round_fraction(Fraction(data.draw(numbers(f.precision, exponents)))) for _ in "ab")
    product = Fraction(a) * Fraction(b)
    # c: the product's own size, half its last place, or anything
    size = math.frexp(float(product))[1] if product else 0
    shift = data.draw(st.sampled_from([0, -1, 1, f.precision, f.precision + 1, -f.precision]))
    near = numbers(f.precision, st.just(min(max(size + shift, f.emin), f.emax)))
    c = f.round_fraction(Fraction(data.draw(st.one_of(near, numbers(f.precision, exponents)))))
    simulated = arithmetic(SIMULATED[fmt])
    x, y, z = (np.array([v], simulated.constant(0).dtype) for v in (a, b, c))
    a, b, c = Fraction(a), Fraction(b), Fraction(c)
    for got, exact in (
        (simulated.add(x, z), a + c),
        (simulated.sub(x, z), a - c),
        (simulated.mul(x, y), a * b),
        (simulated.fma(x, y, z), a * b + c),
    ):
        assert got.dtype == x.dtype
        assert float(got[0]) == f.round_fraction(exact)


def test_fma_keeps_ieee_specials():
    a = [np.inf, 0.0, np.nan, 1.0, -0.0, -0.0, np.inf, 1e300, -1.0]
    b = [1.0, np.inf, 1.0, 1.0, 1.0, 1.0, 1.0, 1e300, 1.0]
    c = [-np.inf, 1.0, 1.0, np.inf, -0.0, 0.0, 1.0, -np.inf, 1.0]
    expected = [np.nan, np.nan, np.nan, np.inf, -0.0, 0.0, np.inf, -np.inf, 0.0]
    y = arithmetic("fp64").fma(*(np.array(v) for v in (a, b, c)))
    assert np.array_equal(y, expected, equal_nan=True)
    assert np.array_equal(np.signbit(y[3:]), np.signbit(expected[3:]))
    narrow = arithmetic("fp32")
    y = narrow.fma(*(np.array(v, np.float32) for v in (a[:7], b[:7], c[:7])))
    assert np.array_equal(y, np.array(expected[:7], np.float32), equal_nan=True)
    big = np.float32(3e38)
    assert narrow.fma(big, big, -big) == np.inf
    assert narrow.mul(big, big) == np.inf
    assert narrow.add(np.float32(1e-45), np.float32(0)) > 0  # subnormals are kept


def test_scalars_and_broadcasting():
    for name in SIMULATED.values():
        a = arithmetic(name)
        x = a.asarray(np.arange(6.0).reshape(2, 3))
        half = a.constant(Fraction(1, 2))
        assert np.array_equal(a.fma(half, x, x[:1]), 0.5 * x + x[:1])
        assert np.array_equal(a.mul(half, x), x / 2)
        assert a.fma(half, half, half) == 0.75


def test_storage_and_constants_round_once():
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1e-9, 70000.0])
    with np.errstate(over="ignore"):
        half = x.astype(np.float16).astype(np.float32)
    assert np.array_equal(arithmetic("fp16").asarray(x), half)
    assert np.array_equal(arithmetic("fp32,storage=fp16").asarray(x), half)
    bfloat = x.astype(np.float32).astype(ml_dtypes.bfloat16)
    assert np.array_equal(arithmetic("bf16").asarray(bfloat), bfloat.astype(np.float32))
    assert arithmetic("fp32").asarray(x).dtype == np.float32
    third = Fraction(1, 3)
    assert arithmetic("fp32").constant(third) == np.float32(1 / 3)
    assert arithmetic("fp64").constant(third) == 1 / 3
    assert arithmetic("fp16,transform=fp16").constant(third) == np.float16(1 / 3)
    # 1 + 2**-24 + 2**-60 lies above a tie that float64 hides
    assert arithmetic("fp32").constant(1 + Fraction(1, 1 << 24) + Fraction(1, 1 << 60)) > 1
    assert np.array_equal(arithmetic("fp32").asarray(np.array([2**24 + 1])), [2**24])


def test_operands_are_rounded_to_the_product_format():
    x, one = np.array([[1 + 2.0**-12]], np.float32), np.ones((1, 1), np.float32)
    assert arithmetic("tf32").matmul(x, one)[0, 0] == 1
    assert arithmetic("fp32").matmul(x, one)[0, 0] == x[0, 0]
    wide = arithmetic("tf32,accumulate=fp64,accumulation=unspecified")
    assert wide.matmul(x, one)[0, 0] == 1
    assert wide.matmul(x, one).dtype == np.float32


def test_fp64_is_numpys_own_product():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 8, 30)), rng.standard_normal((30, 9))
    assert np.array_equal(arithmetic("fp64").matmul(a, b), a @ b)
    with_inf = np.array([[np.inf, -np.inf]])
    assert np.isnan(arithmetic("fp64").matmul(with_inf, np.ones((2, 1)))[0, 0])


@pytest.mark.parametrize(
    "text",
    [
        "exact",
        "mp:200",
        *PRESETS,
        "fp32,storage=fp16",
        "fp32,accumulation=two_level:32",
        "fp32,fused=no",
        "fp64,storage=fp32",
        "tf32,accumulation=tensor_core:8:2:truncate",
        "fp16,accumulate=fp16,accumulation=sequential",
    ],
)
def test_names_read_back(text):
    value = arithmetic(text)
    assert value.name == text
    assert arithmetic(value) is value
    assert arithmetic(value.name) == value
    assert hash(arithmetic(value.name)) == hash(value)
    assert pickle.loads(pickle.dumps(value)) == value


def test_bad_text_is_refused_with_what_is_accepted():
    for text, message in {
        "fp31": "expected one of exact, mp:BITS, fp32.*; did you mean 'fp32'",
        "FP32": "did you mean 'fp32'",
        "mp:many": "expected bits as an integer",
        "mp:1": "expected 2 to 65536",
        "fp32,storage=half": "unknown format 'half'",
        "fp32,acumulate=fp16": "did you mean 'accumulate'",
        "fp32,fused=maybe": "expected fused=yes or fused=no",
        "fp32,accumulate=fp64": "fp64 sums are 'unspecified'",
        "fp32,product=fp64": "at most 26 bits",
    }.items():
        with pytest.raises(ValueError, match=message):
            arithmetic(text)
    with pytest.raises(TypeError, match="precision is of type int; expected a text"):
        arithmetic(32)  # pyright: ignore[reportArgumentType]
    for bad in (np.array([1j]), np.array(["a"]), np.array([True])):
        with pytest.raises(TypeError, match=r"has dtype .*; expected numbers"):
            arithmetic("fp32").asarray(bad)


def test_every_preset_has_a_dtype_that_holds_it():
    for name, value in PRESETS.items():
        assert isinstance(value, Float)
        assert value.dtype == (np.float64 if name == "fp64" else np.float32)


mp: Any = Mp  # of any arguments
sums: Any = Accumulation
power: Any = Power
inexact: Any = 2.0


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: mp(200.0), TypeError, "bits of mp is 200.0; expected an integer"),
        (lambda: sums("two_level", 2.5), TypeError, "block of accumulation is 2.5"),
        (lambda: power("given", 1.5), TypeError, "exponent of a scale is 1.5"),
        (lambda: power("papr"), ValueError, "rule 'papr' of a scale; expected one of absmax"),
        (lambda: arithmetic("mp:" + "9" * 5000), ValueError, "expected bits as an integer"),
        (lambda: arithmetic("mp:²"), ValueError, "expected bits as an integer"),
        (lambda: arithmetic("fp32_split,parts=" + "9" * 5000), ValueError, "expected an integer"),
        (lambda: replace(PRESETS["fp32_split"], parts=inexact), TypeError, "parts is 2.0"),
    ],
)
def test_numbers_of_an_arithmetic_are_integers(make, error, message):
    with pytest.raises(error, match=message) as raised:
        make()
    assert len(str(raised.value)) < 200


def test_numbers_of_an_arithmetic_become_pythons():
    """They are keys of caches: twice 100 of int8 is -56."""
    assert type(mp(np.int8(100)).bits) is int
    assert type(sums("two_level", np.int8(100)).block) is int
    assert type(power("given", np.int8(100)).value) is int


def test_a_field_that_is_given_twice_is_refused():
    with pytest.raises(ValueError, match="gives fused twice; give it once"):
        arithmetic("fp32,fused=yes,fused=no")


def test_the_output_transform_has_a_format_of_its_own():
    text = "fp16,transform=fp16,outputs=fp32"
    run: Any = arithmetic(text)
    assert arithmetic(run.name) == run
    assert (run.of_outputs.transform.name, run.of_sums.name) == ("fp32", "fp32")
    assert run.of_filters is run
    assert arithmetic("fp16,outputs=none").of_outputs == arithmetic("fp16")
    a, b = np.array([[2**-11, 1.0]], "f4"), np.array([[1.0], [1.0]], "f4")
    assert run.matmul(a, b)[0, 0] == 1 + 2**-11  # not rounded to FP16 before it is transformed
    assert arithmetic("fp16,transform=fp16").matmul(a, b)[0, 0] == 1
