"""Every order of summation, bit for bit, against a scalar oracle in Fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.ref.arithmetic import accumulate
from winolab.ref.arithmetic.accumulate import Accumulation
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import arithmetic

ORDERS = [
    "sequential",
    "two_level:4",
    "two_level:1",
    "pairwise",
    "kahan",
    "tensor_core:4:0:truncate",
    "tensor_core:8:1:truncate",
    "tensor_core:5:2:nearest",
    "tensor_core:4:2:truncate:8",
]


def binade(q):
    """The largest power of two that is at most |q|."""
    return Fraction(2) ** (math.frexp(float(q))[1] - 1) if q else Fraction(0)


class Oracle:
    """Dot product of two lists of Fractions, one rounding at a time."""

    def __init__(self, order, fmt, fused):
        self.order, self.fmt, self.fused = order, fmt, fused

    def round(self, q):
        return Fraction(self.fmt.round_fraction(q))

    def madd(self, x, y, c):
        return self.round((x * y if self.fused else self.round(x * y)) + c)

    def sequential(self, a, b):
        total = Fraction(0)
        for x, y in zip(a, b, strict=True):
            total = self.madd(x, y, total)
        return total

    def two_level(self, a, b):
        k, total = self.order.block, Fraction(0)
        for i in range(0, len(a), k):
            total = self.round(total + self.sequential(a[i : i + k], b[i : i + k]))
        return total

    def pairwise(self, a, b):
        level = [self.round(x * y) for x, y in zip(a, b, strict=True)]
        while len(level) > 1:  # neighbours in pairs, an odd one goes up as it is
            level = [self.round(sum(level[i : i + 2])) for i in range(0, len(level), 2)]
        return level[0]

    def kahan(self, a, b):
        total = lost = Fraction(0)
        for x, y in zip(a, b, strict=True):
            term = self.madd(x, y, -lost)
            new = self.round(total + term)
            lost = self.round(self.round(new - total) - term)
            total = new
        return total

    def tensor_core(self, a, b):
        total, i, turn = Fraction(0), 0, 0
        while i < len(a):
            step = (
                self.order.intervals[turn % len(self.order.intervals)]
                if self.order.intervals
                else len(a)
            )
            total = self.round(total + self.chunks(a[i : i + step], b[i : i + step]))
            i, turn = i + step, turn + 1
        return total

    def field(self, x):
        """The power of two that the format has of x: of subnormal numbers the least."""
        return max(binade(x), Fraction(2) ** self.fmt.emin) if x else 0

    def chunks(self, a, b):
        total = Fraction(0)
        for i in range(0, len(a), self.order.block):
            pairs = zip(a[i : i + self.order.block], b[i : i + self.order.block], strict=True)
            terms = [total, *(x * y for x, y in pairs)]
            pairs = zip(a[i : i + self.order.block], b[i : i + self.order.block], strict=True)
            largest = max(abs(total), *(self.field(x) * self.field(y) for x, y in pairs))
            exponent = self.fmt.emin if total else 2 * self.fmt.emin  # of 0 there is none
            while Fraction(2) ** (exponent + 1) <= largest:
                exponent += 1
            spacing = Fraction(2) ** (exponent + 1 - self.fmt.precision - self.order.extra_bits)
            q = sum(math.trunc(t / spacing) for t in terms) * spacing
            if self.order.rounding == "nearest":
                total = self.round(q)
            else:
                total = Fraction(float(self.fmt.round(float(q), "truncate")))
        return total

    def __call__(self, a, b):
        return getattr(self, self.order.kind)(a, b)


def spec(fmt, order, fused=True):
    return f"fp32,storage={fmt},product={fmt},accumulate={fmt},accumulation={order}" + (
        "" if fused else ",fused=no"
    )


def check(fmt, order, fused, a, b):
    """Simulated a (M, K) @ b (K, N) equals the oracle; the oracle has no negative zero."""
    simulated = arithmetic(spec(fmt, order, fused))
    y = simulated.to_float64(simulated.matmul(a.astype(np.float32), b.astype(np.float32)))
    oracle = Oracle(Accumulation.parse(order), FORMATS[fmt], fused)
    rows = [[Fraction(float(v)) for v in row] for row in a]
    columns = [[Fraction(float(v)) for v in column] for column in b.T]
    assert np.array_equal(y, [[float(oracle(r, c)) for c in columns] for r in rows])


def sparse_significands(rng, shape, precision, spread):
    """Numbers of few bits and few exponents: their sums land on ties again and again."""
    bits = rng.choice([0, 1, 2, precision - 2, precision - 1], (*shape, 2))
    x = 1 + rng.integers(0, 2, shape) * 2.0 ** -bits[..., 0] - 2.0 ** -bits[..., 1] / 2
    x *= rng.choice([-1, 1, 1], shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    return FORMATS["fp32" if precision == 24 else "fp16" if precision == 11 else "bf16"].round(x)


@pytest.mark.parametrize("fused", [True, False], ids=["fma", "mul+add"])
@pytest.mark.parametrize("fmt", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("order", ORDERS)
def test_orders_match_the_oracle(order, fmt, fused):
    rng = np.random.default_rng(7)
    for k in (1, 7, 21):
        p = FORMATS[fmt].precision
        for spread in (1, p // 2):
            a, b = (sparse_significands(rng, shape, p, spread) for shape in ((4, k), (k, 4)))
            check(fmt, order, fused, a, b)
        a, b = (FORMATS[fmt].round(rng.standard_normal(s)) for s in ((3, k), (k, 4)))
        check(fmt, order, fused, a, b)


@pytest.mark.parametrize("fmt", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("order", ORDERS)
def test_orders_match_the_oracle_among_subnormals(order, fmt):
    rng = np.random.default_rng(3)
    f = FORMATS[fmt]
    for low in (f.emin - f.precision, f.emin // 2 - f.precision, f.emin // 2 - 4):
        shapes = ((5, 9), (9, 6))
        a, b = (
            f.round(rng.standard_normal(s) * 2.0 ** rng.integers(low, low + 8, s)) for s in shapes
        )
        check(fmt, order, True, a, f.round(b * 2.0 ** min(f.emin + f.precision - low, f.emax - 8)))
        check(fmt, order, True, a, b)


UP, DOWN = 1 + 2.0**-23, 1 - 2.0**-23  # their product is 1 - 2**-46
SIGN = st.sampled_from([1, -1])


def near_ties():
    """(c, x, y) of FP32 whose c + x*y is a tie of FP32 when rounded to 53 bits, and is none."""

    def half_unit(m, e, s, t):  # |x*y| just below half a unit of c
        return s * math.ldexp(m, e), t * math.ldexp(UP, e // 2), math.ldexp(DOWN, e - e // 2 - 1)

    def long_product(m, e, s, t):  # x*y is a tie by itself, c far below it
        return s * math.ldexp(1, e - 60), t * math.ldexp(2 * m + 1, e), 1.5

    def subnormal(m, e, s, t):
        return s * math.ldexp(m, -149), t * UP * 2.0**-75, DOWN * 2.0**-75

    full = st.integers(1 << 23, (1 << 24) - 1)
    return st.one_of(
        st.builds(half_unit, full, st.integers(-90, 90), SIGN, SIGN),
        st.builds(long_product, st.integers(1 << 22, 5592400), st.integers(-60, 60), SIGN, SIGN),
        st.builds(subnormal, st.integers(1 << 7, 1 << 23), st.just(0), SIGN, SIGN),
    )


@settings(deadline=None, max_examples=200)
@given(near_ties())
def test_ties_of_the_53_bit_sum_are_repaired(case):
    c, x, y = case
    check("fp32", "sequential", True, np.array([[c, x]]), np.array([[1.0], [y]]))
    exact = FORMATS["fp32"].round_fraction(Fraction(c) + Fraction(x) * Fraction(y))
    assert arithmetic("fp32").fma(*(np.float32(v) for v in (x, y, c))) == exact


def test_exact_ties_go_to_even():
    for c, expected in ((1.0, 1.0), (1 + 2.0**-23, 1 + 2.0**-22)):
        a, b = np.array([[c, 2.0**-12]]), np.array([[1.0], [2.0**-12]])
        assert arithmetic("fp32").matmul(a, b)[0, 0] == expected


@settings(deadline=None, max_examples=100)
@given(
    st.integers(1 << 23, (1 << 24) - 1),
    st.integers(1 << 23, (1 << 24) - 1),
    st.integers(1 << 23, (1 << 24) - 1),
    st.integers(-60, 60),
    st.booleans(),
)
def test_one_fused_step_rounds_once(c, x, y, shift, negative):
    """acc + x*y with the product's exponent anywhere beside the accumulator's."""
    a = np.array([[c, math.ldexp(-x if negative else x, -24)]])
    b = np.array([[1.0], [math.ldexp(y, shift - 24)]])
    check("fp32", "sequential", True, a, b)


def test_blocks_and_batches_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((3, 1, 7, 20)), rng.standard_normal((2, 20, 5))
    for order in ORDERS:
        simulated = arithmetic(spec("fp32", order))
        whole = simulated.matmul(a, b)
        with monkeypatch.context() as small:
            small.setattr(accumulate, "BLOCK", 8)
            small.setattr(accumulate, "INNER", 3)
            assert np.array_equal(simulated.matmul(a, b), whole)
        single = [[simulated.matmul(a[i, 0], b[j]) for j in range(2)] for i in range(3)]
        assert np.array_equal(single, whole)


@pytest.mark.parametrize("order", ORDERS)
def test_infinity_nan_overflow_and_empty(order):
    simulated = arithmetic(spec("fp32", order))
    one = np.ones((3, 1), np.float32)

    def row(*v):
        return simulated.matmul(np.array([v], np.float32), one)[0, 0]

    assert np.isnan(row(np.nan, 1, 1))
    assert np.isnan(row(np.inf, -np.inf, 1))
    assert row(np.inf, 1, 1) == np.inf  # inf - inf is no correction of a compensated sum
    assert row(3e38, 3e38, 0) == np.inf
    assert row(-3e38, -3e38, 0) == -np.inf
    for shape, other in (((0, 4), (4, 3)), ((2, 0), (0, 3)), ((2, 4), (4, 0))):
        y = simulated.matmul(np.zeros(shape, np.float32), np.zeros(other, np.float32))
        assert y.shape == (shape[0], other[1])
        assert not y.any()


def test_kahan_loses_less_than_a_plain_sum():
    x = np.full((1, 4096), np.float32(0.1))
    one = np.ones((4096, 1), np.float32)
    exact = 4096 * float(x[0, 0])
    error = {k: abs(arithmetic(spec("fp32", k)).matmul(x, one)[0, 0] - exact) for k in ORDERS}
    assert error["kahan"] <= 2.0**-24 * exact
    assert error["pairwise"] <= 12 * 2.0**-24 * exact
    assert error["kahan"] < error["sequential"]


@pytest.mark.parametrize(
    ("order", "low", "high"),
    [
        # Im2col-Winograd, table 3: 1.27e-8 K, Ampere and Ada
        ("tensor_core:8:1:truncate", 1.0e-8, 1.4e-8),
        # cuDNN on an H100, default mode, IMPL_PRECOMP: 6.7e-5 at 9x9x128 = 8978 products an
        # output within the padded borders
        ("tensor_core:8:2:truncate", 6.5e-9, 8.5e-9),
    ],
)
def test_truncation_makes_tf32_errors_grow_with_the_length(order, low, high):
    rng = np.random.default_rng(0)
    k = 4608
    a, b = rng.uniform(1, 2, (32, k)), rng.uniform(1, 2, (k, 32))
    simulated = arithmetic(f"tf32,accumulation={order}")
    y = simulated.to_float64(simulated.matmul(simulated.asarray(a), simulated.asarray(b)))
    exact = a.astype(np.float32).astype(float) @ b.astype(np.float32).astype(float)
    assert low * k <= np.mean(np.abs(y / exact - 1)) <= high * k


def test_text_forms():
    for order in [*ORDERS, "unspecified"]:
        assert str(Accumulation.parse(order)) == order
    for text, message in {
        "pairwize": "did you mean 'pairwise'",
        "two_level": "expected 'sequential'",
        "two_level:x": "expected block, extra bits and intervals as integers",
        "two_level:0": "block of 1 or more",
        "tensor_core:8:1:up": "unknown rounding 'up'",
        "tensor_core:8:99:nearest": "expected 0 to 16 bits",
    }.items():
        with pytest.raises(ValueError, match=message):
            Accumulation.parse(text)
