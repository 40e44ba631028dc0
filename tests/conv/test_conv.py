import itertools
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.problems import integers, options, problems
from winolab import conv_backward_data, conv_backward_filter, conv_forward, dwm, prepare_filter


def by_definition(x, w, problem):
    """The sum that defines the layer, one Python integer at a time."""
    y = np.zeros(problem.y_shape, dtype=object)
    channels = problem.in_channels // problem.groups
    per_group = problem.out_channels // problem.groups
    for n, *at, oc in itertools.product(*map(range, problem.y_shape)):
        first = oc // per_group * channels
        for tap in itertools.product(*map(range, problem.filter)):
            where = [
                o * s + t * d - lo
                for o, s, t, d, (lo, _) in zip(
                    at, problem.stride, tap, problem.dilation, problem.padding, strict=True
                )
            ]
            if all(0 <= i < size for i, size in zip(where, problem.input, strict=True)):
                pixel = x[(n, *where)][first : first + channels]
                y[(n, *at, oc)] += int(pixel @ w[(oc, *tap)])
    return y


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 2**32))
def test_forward_is_the_definition(problem, seed):
    x, w = integers(problem.x_shape, seed), integers(problem.w_shape, seed + 1)
    y = conv_forward(x, w, precision="exact", **options(problem))
    assert y.shape == problem.y_shape
    assert (y == by_definition(x, w, problem)).all()


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 2**32), st.sampled_from(["channels_last", "channels_first"]))
def test_both_gradients_are_adjoint(problem, seed, layout):
    """⟨conv(x, w), dy⟩ = ⟨x, dx⟩ = ⟨w, dw⟩ for every dy, exactly."""

    def data(shape, k):
        array = integers(shape, seed + k)
        return array if layout == "channels_last" else np.moveaxis(array, -1, 1)

    x, w, dy = data(problem.x_shape, 0), data(problem.w_shape, 1), data(problem.y_shape, 2)
    how = {"precision": "exact", "layout": layout, **options(problem)}
    y = conv_forward(x, w, **how)
    dx = conv_backward_data(dy, w, x.shape, **how)
    dw = conv_backward_filter(x, dy, w.shape, **how)
    assert (dx.shape, dw.shape) == (x.shape, w.shape)
    assert (y * dy).sum() == (x * dx).sum() == (w * dw).sum()


@pytest.mark.parametrize(
    ("algorithm", "taps"),
    [
        ("gamma:8:6:3", (3,)),
        ("gamma:8:6:3@paper", (2, 3)),
        ("gamma:16:8:9;scaling=l1", (1, 9)),
        ("gamma:4:3:2", (2, 1, 2)),
        ("winograd:2:3", (3,)),
        ("winograd:4x4:3x3", (3, 3)),
        ("winograd:3x2:2x5;scaling=power_of_two", (2, 5)),
        ("winograd:2x3x2:3x1x2@wincnn", (3, 1, 2)),
        ("gamma:8:6:3", (2, 7)),  # in pieces of r taps, the last filled up
        ("gamma:4:3:2", (4,)),
        ("winograd:3x2:2x3", (5, 4)),
    ],
)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_tiled_algorithms_equal_direct_exactly(algorithm, taps, data):
    problem = data.draw(problems(ndim=len(taps), filter_=taps, unit=True))
    seed = data.draw(st.integers(0, 2**32))
    x, w, dy = (
        integers(shape, seed + k)
        for k, shape in enumerate((problem.x_shape, problem.w_shape, problem.y_shape))
    )
    how = {"precision": "exact", **options(problem)}
    tiled = {"algorithm": algorithm, **how}
    assert (conv_forward(x, w, **tiled) == conv_forward(x, w, **how)).all()
    dx = conv_backward_data(dy, w, x.shape, **tiled)
    assert (dx == conv_backward_data(dy, w, x.shape, **how)).all()


@pytest.mark.parametrize("algorithm", ["winograd:3x3:2x2", "winograd:3x3:4x3", "winograd:1x3:3x6"])
@settings(max_examples=12, deadline=None)
@given(problem=problems(ndim=2, filter_=(3, 3), unit=True), seed=st.integers(0, 2**32))
def test_filter_gradient_from_pieces_of_dy(algorithm, problem, seed):
    """F(3×3, 2×2) of Lavin & Gray, section 4.2, and others; pieces that do not divide dy too."""
    x, dy = integers(problem.x_shape, seed), integers(problem.y_shape, seed + 1)
    how = {"precision": "exact", **options(problem)}
    dw = conv_backward_filter(x, dy, problem.w_shape, algorithm=algorithm, **how)
    assert (dw == conv_backward_filter(x, dy, problem.w_shape, **how)).all()


@pytest.mark.parametrize("algorithm", ["direct", "gamma:8:6:3", "winograd:4x4:3x3"])
def test_agreement_at_two_precisions(algorithm):
    """Fifty more bits change nothing in the first two hundred."""
    x, w = integers((1, 9, 9, 2), 1), integers((2, 3, 3, 2), 2)
    how = {"algorithm": algorithm, "padding": 1}
    low, high = (conv_forward(x, w, precision=f"mp:{bits}", **how) for bits in (200, 250))
    assert max(abs(a - b) for a, b in zip(low.ravel(), high.ravel(), strict=True)) <= 2.0**-170
    exact = conv_forward(x, w, precision="exact", **how)
    assert (
        max(abs(a - int(b)) for a, b in zip(high.ravel(), exact.ravel(), strict=True)) <= 2.0**-220
    )


def test_fp64_is_exact_on_small_integers():
    x, w = integers((2, 8, 9, 6), 1).astype(float), integers((4, 3, 3, 3), 2).astype(float)
    how = {"padding": (1, 2), "stride": (2, 1), "groups": 2}
    assert (conv_forward(x, w, **how) == conv_forward(x, w, precision="exact", **how)).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_result_has_the_callers_dtype(dtype):
    x, w = integers((1, 6, 6, 2), 1).astype(dtype), integers((2, 3, 3, 2), 2).astype(dtype)
    assert conv_forward(x, w).dtype == dtype
    assert conv_forward(x, w, out_dtype=np.float64).dtype == np.float64
    exact = conv_forward(x, w, precision="exact").astype(float)
    assert (conv_forward(x, w, out_dtype=np.float64) == exact).all()


def test_out_receives_the_result_and_is_returned():
    x, w = (
        integers((1, 6, 6, 2), 1).astype(np.float32),
        integers((2, 3, 3, 2), 2).astype(np.float32),
    )
    out = np.full((1, 4, 4, 2), np.nan, dtype=np.float32)
    y = conv_forward(x, w, out=out)
    assert y is out
    assert (out == conv_forward(x, w)).all()


@pytest.mark.parametrize("algorithm", ["direct", "gamma:8:6:3", "winograd:2x2:3x3"])
def test_views_of_any_strides_are_read_right(algorithm):
    x = integers((2, 14, 8, 6), 1).astype(np.float32)[:, ::2, :, 1::2]
    w = integers((3, 3, 3, 4), 2).astype(np.float32).transpose(0, 2, 1, 3)[..., ::-1][..., :3]
    how = {"algorithm": algorithm, "padding": 1}
    assert (conv_forward(x, w, **how) == conv_forward(x.copy(), w.copy(), **how)).all()


@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "exact"])
@pytest.mark.parametrize("algorithm", ["direct", "gamma:8:6:3", "winograd:2x2:3x3"])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "y_shape"),
    [
        ((0, 8, 8, 2), (3, 3, 3, 2), (0, 6, 6, 3)),
        ((2, 8, 0, 2), (3, 3, 3, 2), (2, 6, 0, 3)),
        ((0, 0, 8, 2), (3, 3, 3, 2), (0, 0, 6, 3)),
        ((2, 8, 8, 2), (0, 3, 3, 2), (2, 6, 6, 0)),
        ((2, 8, 8, 0), (3, 3, 3, 0), (2, 6, 6, 3)),
    ],
)
def test_empty_arrays(precision, algorithm, x_shape, w_shape, y_shape):
    x, w = np.ones(x_shape, np.float32), np.ones(w_shape, np.float32)
    how = {"algorithm": algorithm, "precision": precision}
    y = conv_forward(x, w, **how)
    assert y.shape == y_shape
    assert (y == 0).all()
    assert conv_backward_data(y, w, x.shape, **how).shape == x_shape
    backward = {**how, "algorithm": "direct" if algorithm.startswith("g") else "winograd:3x3:2x2"}
    dw = conv_backward_filter(x, y, w.shape, **backward)
    assert dw.shape == w_shape
    assert (dw == 0).all()


@pytest.mark.parametrize("integer", [int, np.int64, np.uint8, np.array])
def test_integers_of_any_type_are_sizes(integer):
    x, w = integers((1, 9, 8, 2), 1), integers((2, 3, 3, 2), 2)
    expected = conv_forward(x, w, stride=2, padding=((1, 1), (1, 2)), precision="exact")
    one, two = integer(1), integer(2)
    got = conv_forward(x, w, stride=two, padding=(one, (one, two)), groups=one, precision="exact")
    assert (got == expected).all()
    assert dwm(integer(3), (two,)) == dwm(3, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stride": 1.0}, "stride in spatial dimension 0 is 1.0; expected an integer"),
        ({"padding": (1, 1.5)}, "padding in spatial dimension 1 is 1.5; expected an integer"),
        ({"padding": (1.0, 1)}, "padding in spatial dimension 0 is 1.0; expected an integer"),
        ({"padding": 1.0}, "padding in spatial dimension 0 is 1.0; expected an integer"),
        ({"groups": "1"}, "groups is '1'; expected an integer"),
        ({"workspace_limit": "1 MB"}, "workspace_limit is '1 MB'; expected an integer"),
    ],
)
def test_other_numbers_are_no_sizes(arguments, message):
    x, w = np.ones((1, 6, 6, 2)), np.ones((2, 3, 3, 2))
    for padding in (1, (1, 1)):  # what was asked before, with equal numbers
        conv_forward(x, w, stride=1, padding=padding)
    with pytest.raises(TypeError, match=message):
        conv_forward(x, w, **arguments)
    with pytest.raises(TypeError, match=message):
        prepare_filter(w, x.shape, **arguments)
    with pytest.raises(TypeError, match=r"a size of x is 6\.7; expected an integer"):
        conv_backward_data(np.ones((1, 4, 4, 2)), w, (1, 6.7, 6.2, 2))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("name", "dtype"), [("fp16", "float16"), ("fp32", "float32")])
def test_a_result_s_dtype_has_the_precision_s_name_too(name: str, dtype: str) -> None:
    x, w = np.ones((1, 6, 6, 2), "f4"), np.ones((2, 3, 3, 2), "f4")
    assert conv_forward(x, w, out_dtype=name).dtype == dtype
    assert conv_forward(x, w, out_dtype="bf16").dtype.name == "bfloat16"
    with pytest.raises(TypeError, match=r"^out_dtype is complex64; expected numbers: ") as raised:
        conv_forward(x, w, out_dtype="c8")
    assert "int16" not in str(raised.value)  # which is refused, too
    with pytest.raises(TypeError, match=r"^x is a prepared filter, which stands in the place of w"):
        conv_forward(prepare_filter(w, x.shape), w)


def test_a_shape_has_all_sizes():
    x, w, five = np.ones((1, 6, 6, 2)), np.ones((2, 3, 3, 2)), cast(Any, 5)
    with pytest.raises(TypeError, match="input_shape is 5; expected all sizes, as"):
        conv_backward_data(x, w, five)
    with pytest.raises(TypeError, match="input_shape is 5; expected all sizes, as"):
        prepare_filter(w, five)
    with pytest.raises(TypeError, match="filter_shape is 5; expected all sizes"):
        conv_backward_filter(x, x, five)


def test_a_limit_of_the_workspace_is_a_size():
    """The reference takes none, so that any limit is kept to."""
    x, w = np.ones((1, 6, 6, 2)), np.ones((2, 3, 3, 2))
    for limit in (0, 1, None):
        assert (conv_forward(x, w, workspace_limit=limit) == 18).all()
    with pytest.raises(ValueError, match="-1; expected bytes, 0 or more, or None"):
        conv_forward(x, w, workspace_limit=-1)
    with pytest.raises(ValueError, match="workspace_limit is -1"):
        prepare_filter(w, x.shape, workspace_limit=-1)


@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16"])
def test_integers_in_floating_point_have_such_a_result(precision):
    x, w = np.full((1, 6, 6, 2), 200, np.uint8), np.full((2, 3, 3, 2), -1, np.int8)
    y = conv_forward(x, w, precision=precision)
    assert y.dtype.kind == "f"
    assert (y == -3600).all()
    with pytest.raises(TypeError, match=r"out_dtype is int16 and the result is float\d\d"):
        conv_forward(x, w, precision=precision, out_dtype=np.int16)
    assert conv_forward(x, w, precision="exact", out_dtype=np.int16).dtype == np.int16


@pytest.mark.parametrize("algorithm", ["direct", "gamma:8:6:3", "winograd:2x2:3x3"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_nan_and_infinity_follow_ieee_rules(algorithm, bad, precision):
    """No exception; every output that depends on the element is not finite, far ones are intact."""
    x, w = np.ones((1, 20, 20, 1), np.float32), np.ones((1, 3, 3, 1), np.float32)
    x[0, 9, 9, 0] = bad
    y = conv_forward(x, w, padding=1, algorithm=algorithm, precision=precision)[0, :, :, 0]
    assert not np.isfinite(y[8:11, 8:11]).any()
    assert (np.abs(y[2:4, 2:4] - 9) <= 9 * 2.0**-18).all()
    if algorithm == "direct":
        assert np.isfinite(y).sum() == 400 - 9


def test_fp16_overflows_to_infinity():
    x, w = np.full((1, 4, 4, 64), 60000, np.float16), np.ones((1, 3, 3, 64), np.float16)
    assert np.isposinf(conv_forward(x, w)).all()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones((1, 8, 2), int), "x has dtype int64, which has no precision of its own"),
        (np.ones((1, 8, 2), object), "x has dtype object, which has no precision"),
        (np.ones((1, 8, 2), np.clongdouble), "complex256"),
        (np.ones((1, 8, 2)).astype(str), "x has dtype <U32; expected numbers"),
        (np.ones((1, 8, 2), np.float32), "arrays of dtypes float32 and float64"),
        (np.ones((1, 8, 2), np.longdouble), "float128"),
    ],
)
def test_arrays_without_a_precision_are_refused(x, message):
    w = np.ones((3, 3, 2)) if x.dtype != np.longdouble else np.ones((3, 3, 2), np.longdouble)
    with pytest.raises(TypeError, match=message):
        conv_forward(x, w)


def test_what_has_a_shape_and_no_numbers_is_refused():
    """As jax.ShapeDtypeStruct: NumPy makes an object of it."""
    x = SimpleNamespace(shape=(1, 8, 2), dtype=np.dtype("f"))
    with pytest.raises(TypeError, match=r"^x is a SimpleNamespace, which has a shape and no n"):
        conv_forward(x, np.ones((3, 3, 2), np.float32))


def test_object_arrays_of_fractions_are_exact():
    third = np.full((1, 8, 1), Fraction(1, 3))
    y = conv_forward(third, third[:, :3], precision="exact", algorithm="gamma:8:6:3")
    assert (y * 3 == 1).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x, w: conv_forward(x, w, algorithm="gamma:8:5:4"),
            "serves 4 taps or more in spatial dimension 1; the filter has 3",
        ),
        (
            lambda x, w: conv_forward(x, w, algorithm="winograd:2:3"),
            "has 1 dimension; the problem has 2",
        ),
        (
            lambda x, w: conv_forward(x, w, algorithm="gamma:8:6:3", stride=2),
            "needs stride 1 and dilation 1.*; use dwm, such as 'dwm:3:2', or direct",
        ),
        (
            lambda x, w: conv_forward(x, w, algorithm="winograd:2x2:3x3", dilation=2),
            "needs stride 1 and dilation 1.*; use dwm, such as 'dwm:3:2', or direct",
        ),
        (lambda x, w: conv_forward(x, w, precision="fp31"), "fp31"),
        (
            lambda x, w: conv_forward(x, w, out=np.zeros(3)),
            r"out has shape \(3,\); expected an array of shape \(1, 6, 6, 4\)",
        ),
        (
            lambda x, w: conv_backward_data(x, w, x.shape),
            r"dy is \(1, 8, 8, 2\) with channels last; the problem's output is \(1, 6, 6, 4\)",
        ),
        (lambda x, w: conv_backward_filter(x, x[0], w.shape), "dy is"),
        (
            lambda x, w: conv_backward_filter(
                x, np.ones((1, 6, 6, 4)), w.shape, algorithm="winograd:3:2"
            ),
            "winograd:3:2 has 1 dimension; the problem has 2",
        ),
        (
            lambda x, w: conv_backward_filter(
                x, x[:, 1:7, 1:7], (2, 3, 3, 2), algorithm="gamma:8:6:3"
            ),
            "for the filter gradient use winograd",
        ),
    ],
)
def test_calls_that_cannot_be_served_say_why(call, message):
    x, w = np.ones((1, 8, 8, 2)), np.ones((4, 3, 3, 2))
    with pytest.raises(ValueError, match=message):
        call(x, w)


def test_two_level_sums_are_those_of_the_arithmetic():
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype("f") for shape in ((1, 7, 9, 64), (3, 3, 3, 64)))
    plain, folded = "gamma:8:6:3", "gamma:8:6:3;variant=two_level:32"
    y = conv_forward(x, w, algorithm=folded)
    named = conv_forward(x, w, algorithm=plain, precision="fp32,accumulation=two_level:32")
    assert (y == named).all()
    assert (y != conv_forward(x, w, algorithm=plain)).any()
    exact = [conv_forward(x, w, algorithm=a, precision="fp64") for a in (plain, folded)]
    assert (exact[0] == exact[1]).all()
    with pytest.raises(ValueError, match=r"two_level:32 sums in two levels, .* otherwise"):
        conv_forward(x, w, algorithm=folded, precision="fp32,accumulation=pairwise")
    for variant in ("pairwise", "two_level", "two_level:0", "two_level:x"):
        with pytest.raises(ValueError, match=f"unknown variant '{variant}'; expected two_level:32"):
            conv_forward(x, w, algorithm=f"{plain};variant={variant}")
