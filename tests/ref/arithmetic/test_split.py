"""Numbers as sums of parts: how far off they are, how they are scaled, what their products lose."""

from fractions import Fraction

import numpy as np
import pytest

from winolab import conv_backward_data, conv_backward_filter, conv_forward
from winolab.ref.arithmetic import split
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.arithmetic.split import Power, Scale
from winolab.ref.error.metrics import compare

FP16, BF16 = FORMATS["fp16"], FORMATS["bf16"]


def numbers(shape, low=-2, high=14, seed=0):
    rng = np.random.default_rng(seed)
    x = (
        rng.uniform(1, 2, shape)
        * rng.choice([-1, 1], shape)
        * 2.0 ** rng.integers(low, high, shape)
    )
    return x.astype(np.float32).astype(np.float64)


def test_two_fp16_parts_leave_a_part_in_2_to_the_23():
    x = numbers(100_000, -30)
    rest = np.abs(x - sum(split.split(x, FP16, 2)))
    assert (rest <= np.maximum(2.0**-23 * np.abs(x), 2.0**-25)).all()
    assert split.left(FP16, 2, 24) == 2.0**-23


def test_three_bf16_parts_leave_nothing():
    x = numbers(10_000, -60, 60)
    assert np.array_equal(sum(split.split(x, BF16, 3)), x)
    assert split.left(BF16, 3, 24) == 0


@pytest.mark.parametrize(("fmt", "parts"), [(FP16, 1), (FP16, 2), (BF16, 1), (BF16, 2)])
def test_expected_squares(fmt, parts):
    x, y = numbers(200_000, 0, 1), numbers(200_000, 0, 1, seed=1)
    found, other = split.split(x, fmt, parts), split.split(y, fmt, parts)
    square = np.mean((x - sum(found)) ** 2)
    assert split.left_square(fmt, parts, 24) == pytest.approx(square, rel=0.02)
    if parts == 2:
        lost = np.mean((found[1] * other[1]) ** 2)
        assert split.dropped_square(fmt, parts) == pytest.approx(lost, rel=0.02)
        assert (np.abs(found[1] * other[1]) <= split.dropped(fmt, 2) * np.abs(x * y)).all()


@pytest.mark.parametrize("parts", [2, 3])
def test_expanded_operands_hold_all_products_but_the_dropped(parts):
    a, b = numbers((3, 20)), numbers((20, 4), seed=1)
    left, right = split.expanded(a, b, BF16, parts, 16)
    assert left.shape[-1] == right.shape[-2] == split.products(parts) * 32
    of_a, of_b = split.split(a, BF16, parts), split.split(b, BF16, parts)
    pairs = [(i, j) for i in range(parts) for j in range(parts) if i + j < parts]
    assert left @ right == pytest.approx(sum(of_a[i] @ of_b[j] for i, j in pairs), rel=1e-12)


@pytest.mark.parametrize("text", ["absmax", "11:-18", "peaks:3:-7", "11", "peaks:3", "absmax:2:0"])
def test_scales_round_trip(text):
    assert str(Scale.parse(text)) == text
    run = arithmetic(f"fp32_split,scale={text}")
    assert arithmetic(run.name) == run


def test_wrong_options_are_refused():
    for text in ("", "peaks", "1:2:3", "x:1", "absmax:"):
        with pytest.raises(ValueError, match="expected 'absmax'"):
            Scale.parse(text)
    with pytest.raises(ValueError, match="1 to 3"):
        arithmetic("fp32_split,parts=4")
    with pytest.raises(ValueError, match="expected an integer"):
        arithmetic("fp32_split,parts=two")
    with pytest.raises(ValueError, match="depends on the data"):
        Scale().exponents((Fraction(1), Fraction(1)))


@pytest.mark.parametrize("peak", [2.0**-149, 1e-30, 1.0, 4.0, 1e30, 3.4e38])
def test_scaled_numbers_stay_below_the_ceiling(peak):
    scale = Scale().of_data(np.array([peak]), np.array([0.0, np.inf]))
    a, b = scale.exponents((Fraction(25, 2), Fraction(1)))
    assert peak * 12.5 * 2.0**a <= 2.0**15
    assert a == 127 or peak * 16 * 2.0**a >= 2.0**14
    assert b == 0  # nothing but zeros is finite


def test_powers_of_two():
    assert [split.ceil_log2(Fraction(v)) for v in ("1", "2", "5/2", "1/3", "16")] == [
        0,
        1,
        2,
        -1,
        4,
    ]
    assert [sum(split.halves(v)) for v in (5, -5, 254)] == [-5, 5, -254]


@pytest.mark.parametrize("text", ["direct", "gamma:8:6:3", "winograd:2x2:3x3", "dwm:3:2", "fft:8"])
@pytest.mark.parametrize("size", [1.0, 1e30, 1e-34])
def test_as_accurate_as_fp32_whatever_the_scale(text, size):
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 8, 14, 32), (8, 3, 3, 32)))
    x *= np.float32(size)
    exact = conv_forward(x.astype(float), w.astype(float), padding=1)
    options = {"padding": 1, "algorithm": text, "out_dtype": float}
    errors = [
        compare(conv_forward(x, w, precision=p, **options), exact).relative_rms
        for p in ("fp32_split", "fp32")
    ]
    assert errors[0] <= 1.2 * errors[1]


def test_gradients():
    rng = np.random.default_rng(4)
    x, dy = (rng.standard_normal(s).astype(np.float32) for s in ((2, 9, 12, 8), (2, 9, 12, 8)))
    w = rng.standard_normal((8, 3, 3, 8)).astype(np.float32)
    for call, args, text in (
        (conv_backward_data, (dy, w, x.shape), "gamma:8:6:3"),
        (conv_backward_filter, (x, dy, w.shape), "omega:4:3:2"),
    ):
        options = {"padding": 1, "out_dtype": float}
        exact = call(*args, precision="fp64", **options)
        found = call(*args, precision="fp32_split", algorithm=text, **options)
        assert compare(found, exact).relative_rms <= 1e-6


@pytest.mark.parametrize(("text", "t"), [("direct", 13), ("gamma:8:6:3;scaling=filter", 11)])
def test_small_numbers_beside_a_huge_one_keep_their_digits(text, t):
    """So far below the largest magnitude the error stays within twice that of FFMA."""
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 6, 24, 16), (8, 1, 3, 16)))
    x *= np.float32(2.0**-t)
    x[0, 0, 0, 0] = 4
    exact = conv_forward(x.astype(float), w.astype(float))[:, 1:]
    errors = [
        compare(conv_forward(x, w, algorithm=text, precision=p, out_dtype=float)[:, 1:], exact)
        for p in ("fp32_split", "fp32")
    ]
    assert errors[0].relative_rms <= 2 * errors[1].relative_rms


def test_infinity_and_nan_are_not_hidden():
    x, w = np.ones((1, 4, 8, 4), np.float32), np.ones((2, 3, 3, 4), np.float32)
    for bad in (np.inf, np.nan):
        x[0, 1, 1, 1] = bad
        y = conv_forward(x, w, algorithm="gamma:8:6:3", precision="fp32_split")
        assert not np.isfinite(y[0, 0, 0]).any()


def test_headroom_spares_exponents_of_the_first_tensor():
    x, w = np.array([3.0, -9.0]), np.array([0.3])
    gains = (Fraction(15), Fraction(1))
    for text, scale in (("absmax", Scale()), ("absmax:2:0", Scale(Power("absmax", 2)))):
        assert Scale.parse(text) == scale
        assert str(scale) == text
    tight, spare = (Scale(Power("absmax", a)).of_data(x, w) for a in (0, 2))
    assert (tight.a.value + 2, tight.b) == (spare.a.value, spare.b)
    assert spare.exponents(gains) == tuple(
        e - s for e, s in zip(tight.exponents(gains), (2, 0), strict=True)
    )


def test_low_parts_run_ahead_of_high_ones():
    """Chunks of 2 of an interval of 3, then of the one chunk that is left: of each lo·hi (l) and
    hi·lo (r), then or later hi·hi (h)."""
    a = np.array([[1 + 2.0**-11 + k for k in range(8)]])
    for ahead, order in (
        (0, "lrh lrh lrh lrh"),
        (1, "lr lrh lrh h lrh"),
        (2, "lr lr lrh h h lrh"),
        (3, "lll rrr hhh lrh"),
    ):
        left, right = split.expanded(a, a.T, FP16, 2, 2, (3,), ahead)
        low = [np.abs(v) < 1e-2 for v in (left[0, ::2], right[::2, 0])]
        found = "".join(
            "h" if not (x or y) else "l" if x else "r" for x, y in zip(*low, strict=True)
        )
        assert found == order.replace(" ", "")


def test_order_and_wide_filters_lower_the_error():
    """As kernels have it: three filter rows of 16 channels an interval."""
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 6, 26, 64), (16, 3, 3, 64)))
    exact = conv_forward(x.astype(float), w.astype(float))
    errors = [
        compare(
            conv_forward(
                x,
                w,
                algorithm="gamma:8:6:3;scaling=filter",
                precision=f"fp32_split,accumulation=tensor_core:16:2:truncate:144{more}",
                out_dtype=float,
            ),
            exact,
        ).relative_rms
        for more in ("", ",ahead=1", ",ahead=1,filters=fp64", ",ahead=3,filters=fp64")
    ]
    assert errors[1] <= 0.92 * errors[0]
    assert errors[2] <= 0.98 * errors[1]
    assert errors[3] <= 0.97 * errors[2]
    assert arithmetic("fp32_split,ahead=1,filters=fp64").name == "fp32_split,ahead=1,filters=fp64"
