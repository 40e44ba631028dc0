from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab import (
    Algorithm,
    Problem,
    Tile,
    direct,
    dwm,
    fft,
    gamma,
    omega,
    parse_algorithm,
    winograd,
    winrs,
)
from winolab.algorithm import FORMS, SCALINGS
from winolab.device import H100, datasheet
from winolab.gpu.planner.planner import plan as gpu_plan
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms.winrs.plan import plan as winrs_plan


def test_tile():
    assert Tile(6, 3).alpha == 8
    assert str(Tile(6, 3)) == "F(6,3)"


def test_problem_of_a_strided_dilated_layer():
    p = Problem.of(
        (2, 10, 7, 6), (4, 3, 2, 3), stride=(2, 1), padding=[(1, 0), 2], dilation=2, groups=2
    )
    assert p.padding == ((1, 0), (2, 2))
    assert p.extent == (5, 3)
    assert p.output == (4, 9)
    assert (p.x_shape, p.w_shape, p.y_shape) == ((2, 10, 7, 6), (4, 3, 2, 3), (2, 4, 9, 4))
    assert p.macs == 2 * 4 * 9 * 4 * 3 * 2 * 3
    assert not p.unit


def test_layouts_state_the_same_problem():
    last = Problem.of((2, 10, 7, 6), (4, 3, 2, 6))
    assert Problem.of((2, 6, 10, 7), (4, 6, 3, 2), layout="channels_first") == last


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9), st.integers(1, 3), st.integers(9, 40))
def test_same_padding_keeps_the_size(r, dilation, size):
    p = Problem.of((1, size, 2), (3, r, 2), padding="same", dilation=dilation)
    assert p.output == (size,)
    ((lo, hi),) = p.padding
    assert 0 <= hi - lo <= 1


# What keras.ops.conv (TensorFlow, padding="same") and onnxruntime (auto_pad) pad.
@pytest.mark.parametrize(
    ("size", "taps", "stride", "dilation", "upper"),
    [
        (5, 3, 2, 1, (1, 1)),
        (6, 3, 2, 1, (0, 1)),
        (6, 2, 2, 1, (0, 0)),
        (7, 4, 3, 1, (1, 2)),
        (8, 1, 3, 1, (0, 0)),
        (10, 3, 4, 2, (1, 2)),
        (7, 4, 1, 2, (3, 3)),
        (7, 2, 1, 1, (0, 1)),
    ],
)
def test_same_padding_with_strides_is_tensorflow_s_and_onnx_s(
    size, taps, stride, dilation, upper
) -> None:
    how: Any = {"stride": stride, "dilation": dilation}
    for name, pair in (("same", upper), ("same_upper", upper), ("same_lower", upper[::-1])):
        p = Problem.of((1, size, 2), (3, taps, 2), **how | {"padding": name})
        assert p.padding == (pair,)
        assert p.output == (-(-size // stride),)


@pytest.mark.parametrize(
    ("x", "w", "options", "message"),
    [
        ((1,), (1,), {}, "x has 1 dimension; expected batch, channels and at least one"),
        ((1, 8, 2), (3, 3, 3, 2), {}, "w has 4 dimensions and x has 3"),
        ((1, 8, 2), (3, 3, 5), {}, "x has 2 channels; w's 5 input channels in 1 group "),
        ((1, 8, 4), (3, 3, 2), {"groups": 2}, "w has 3 output channels; expected a multiple of 2"),
        ((1, 8, 2), (3, 0, 2), {}, "filter size 0 in spatial dimension 0; expected at"),
        ((1, 9, 8, 2), (3, 3, 9, 2), {}, "spatial dimension 1: the filter spans 9 inputs"),
        ((1, 8, 2), (3, 3, 2), {"padding": -1}, "padding in spatial dimension 0 is -1"),
        ((1, 8, 2), (3, 3, 2), {"padding": 10**6}, "most is 4096"),
        ((1, 8, 2), (3, 3, 2), {"padding": "full"}, "padding 'full'; expected numbers"),
        ((1, 8, 2), (3, 3, 2), {"padding": (1, 1)}, "padding has 2 values; expected one"),
        ((1, 8, 2), (3, 3, 2), {"padding": "smae_upper"}, "did you mean .same_upper."),
        (
            (1, 8, 9, 2),
            (3, 3, 3, 2),
            {"padding": [(1, 1), (1,)]},
            r"dimension 1 is \(1,\); expected an integer or a pair \(low, high\)",
        ),
        ((2, 3, 8, 9), (4, 3, 3, 3), {}, "need 3; did you mean layout='channels_first'"),
        (
            (2, 8, 9, 6),
            (4, 3, 3, 3),
            {"groups": 2, "layout": "channels_first"},
            "need 6; did you mean layout='channels_last'",
        ),
        ((1, 8, 2), (3, 3, 2), {"stride": 0}, "stride in spatial dimension 0 is 0"),
        ((1, 8, 2), (3, 3, 2), {"dilation": (1, 2)}, "dilation has 2 values; expected one"),
        ((1, 8, 8, 2), (3, 3, 3, 2), {"stride": (1,)}, "has 1 value; expected one, or 2, one a"),
        ((1, 8, 2), (3, 3, 2), {"groups": 0}, "groups = 0; expected at least 1"),
        ((1, 8, 2), (3, 3, 2), {"layout": "CHWN"}, "CHWN is not supported; transpose"),
        (
            (1, 8, 2),
            (3, 3, 2),
            {"layout": "NHWC"},
            "unknown layout 'NHWC'; expected one of .*; did you mean 'channels_last'",
        ),
        ((1, 8, 2), (3, 3, 2), {"layout": "NCW"}, "did you mean 'channels_first'"),
        ((1, 8, 2), (3, 3, 2), {"layout": "channel_first"}, "did you mean 'channels_first'"),
        ((1, 8, 2), (3, 3, 2), {"layout": "NHCW"}, "channels_last, channels_first$"),
        ((1, 8, 2), (3, 3, 2), {"layout": "NC"}, "channels_last, channels_first$"),
        ((1, 8, 2), (3, 3, 2), {"layout": ""}, "channels_last, channels_first$"),
    ],
)
def test_shapes_that_do_not_fit_are_named(x, w, options, message):
    with pytest.raises(ValueError, match=message):
        Problem.of(x, w, **options)


def test_an_empty_input_has_an_empty_output():
    assert Problem.of((1, 0, 2), (3, 3, 2)).output == (0,)


@pytest.mark.parametrize(
    "algorithm",
    [
        direct(),
        winograd((4, 4), (3, 3)),
        winograd((2, 3, 2), (3, 1, 2), points="paper", scaling="l1"),
        gamma(8, 6, 3),
        gamma(16, 8, 9, points="paper", scaling="power_of_two", variant="two_level:32"),
        gamma(8, 6, 3, points="0,1,-1,1/2,-1/2,2,-2,inf"),
        gamma(4, 2, 3, points=(0, Fraction(1, 2), -1, "inf")),
        gamma(4, 2, 3, points=None, scaling="none"),
    ],
)
def test_text_round_trips(algorithm):
    assert parse_algorithm(str(algorithm)) == algorithm
    assert parse_algorithm(algorithm) is algorithm


def test_every_documented_form_parses():
    for kind, form in FORMS.items():
        assert parse_algorithm(form).kind == kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "gama:8:6:3",
            "unknown algorithm 'gama:8:6:3'; accepted are forms like .*did you mean 'gamma:8:6:3",
        ),
        ("gamma:8:6", "'gamma:8:6' is malformed; gamma has the form"),
        ("gamma:8:6:x", "malformed"),
        ("gamma:8:6:3;speed=9", "malformed"),
        ("gamma:8:6:4", "alpha must be n \\+ r - 1 = 9"),
        ("gamma:33:31:3", "at most 32"),
        ("winograd:4x4:3", "2 output and 1 filter sizes; expected as many"),
        ("direct:3", "malformed"),
        ("", "unknown algorithm ''"),
    ],
)
def test_unknown_text_is_refused_with_what_is_accepted(text, message):
    with pytest.raises(ValueError, match=message):
        parse_algorithm(text)


def test_an_algorithm_of_another_type_is_refused():
    with pytest.raises(TypeError, match="is of type int; expected an Algorithm or a text"):
        parse_algorithm(3)  # type: ignore[arg-type]


def test_algorithms_are_hashable_values():
    assert len({gamma(8, 6, 3), parse_algorithm("gamma:8:6:3"), Algorithm("direct")}) == 2


def of(make: Any, *values: Any, **named: Any) -> Any:
    """A call to be made, of any types."""
    return lambda: make(*values, **named)


REFUSED = [
    # Issue 42, item 8.
    (of(winograd, 2, 3), TypeError, r"winograd: output sizes 2; expected one a dimension"),
    (of(Tile, "6", 3), TypeError, r"n of a tile F\(n, r\) is '6'; expected an integer"),
    (of(gamma, 8.0, 6.0, 3.0), TypeError, r"n of a tile F\(n, r\) is 6.0; expected an integer"),
    (of(gamma, 8.0, 6, 3), TypeError, "alpha of gamma is 8.0; expected an integer"),
    (of(omega, 8, 3, 6, segments=2.5), TypeError, "segments is 2.5; expected an integer"),
    (of(gamma, 8, 6, 3, points="papr"), ValueError, "unknown points 'papr'"),
    # Their siblings.
    (of(Algorithm, "gama"), ValueError, "algorithm of kind 'gama'; expected one of direct"),
    (of(Algorithm, "gamma"), ValueError, "gamma has 0 tiles; expected one"),
    (of(Algorithm, "winograd"), ValueError, "winograd has no tiles"),
    (of(Algorithm, "gamma", ((6, 3),)), TypeError, r"a tile is \(6, 3\); expected a Tile"),
    (of(Algorithm, "direct", points="paper"), ValueError, "direct takes no points"),
    (of(Algorithm, "winograd", (Tile(4, 3),), segments=3), ValueError, "takes no segments"),
    (of(Algorithm, "dwm"), ValueError, "either pieces and tiles or an error"),
    (of(gamma, 6, 4, 3, points="0,1,inf"), ValueError, "3 points given; expected alpha .* = 6"),
    (
        of(winograd, (4, 2), (3, 3), points="0,1,inf"),
        ValueError,
        r"3 points given; expected alpha = n \+ r - 1 = 4 or 6, as many as F\(4,3\) or F\(2,3\)",
    ),
    (of(dwm, 3, 2, points="0,1,2,3,inf"), ValueError, "5 points given; expected alpha"),
    (of(dwm, 5, 4, error=0.02), ValueError, "an error chooses pieces and tiles"),
    (of(dwm, error=0.02, variant="long"), ValueError, "dwm: unknown variant 'long'"),
    (of(dwm, error="0.02"), TypeError, "dwm: error is '0.02'"),
    (of(dwm, 2.0), TypeError, "a size of an algorithm is 2.0; expected an integer"),
    (
        of(gamma, 8, 6, 3, scaling="l3"),
        ValueError,
        "unknown scaling 'l3'; expected one of none",
    ),
    (of(gamma, 8, 6, 3, variant="two_level:0"), ValueError, "unknown variant 'two_level:0'"),
    (of(winrs, device="rtx409"), ValueError, "unknown device 'rtx409'"),
    (of(winrs, device=3), TypeError, "device is of type int"),
    (of(winrs, segments=0), ValueError, "segments = 0; expected at least 1"),
    (of(winrs, segments=10**12), ValueError, "expected at least 1, and below"),
    (of(fft, 16, products=3.0), TypeError, "products is 3.0; expected an integer"),
    (of(fft, 16, products=5), ValueError, "products 5; expected sizes of 1 or more"),
    (of(fft, ()), ValueError, r"fft: sizes \(\)"),
    # Options that contradict each other.
    (of(parse_algorithm, "gamma:8:6:3@paper;points=wincnn"), ValueError, "its points twice"),
    (of(parse_algorithm, "winrs;segments=3;segments=5"), ValueError, "its segments twice"),
    (of(parse_algorithm, "gamma:8:6:3;scaling=l1;scaling=none"), ValueError, "scaling twice"),
    (of(parse_algorithm, "dwm:3:2;error=0.02"), ValueError, "malformed; dwm has the form"),
    (of(parse_algorithm, "gamma:8:6:3@"), ValueError, "malformed; gamma has the form"),
    (of(parse_algorithm, "gamma:8:6:3;scaling="), ValueError, "malformed; gamma has the form"),
    (of(parse_algorithm, "gamma:8:6:" + "3" * 5000), ValueError, "malformed; gamma has the"),
]


@pytest.mark.parametrize(("make", "error", "message"), REFUSED)
def test_constructors_check_their_arguments(make, error, message):
    with pytest.raises(error, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


LAYER = Problem.of((1, 8, 8, 2), (3, 3, 3, 2), padding=1)
TEXT: Any = "gamma:6:4:3"


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        # Issue 42: one padding pair for two dimensions.
        ({"padding": ((1, 1),)}, ValueError, "padding has 1 value; expected 2"),
        ({"padding": (1, 1)}, TypeError, "padding is 1; expected a list, a value a dimension"),
        ({"padding": ((1, 1), (1,))}, ValueError, r"expected a \(low, high\) pair a dimension"),
        ({"padding": ((1, 1), (1, 0.5))}, TypeError, "a padding is 0.5; expected an integer"),
        ({"stride": (1,)}, ValueError, "stride has 1 value; expected 2"),
        ({"dilation": (1, 0)}, ValueError, r"dilation is \(1, 0\); expected at least 1"),
        ({"input": 8}, TypeError, "input is 8; expected a list, a value a dimension"),
        ({"filter": ()}, ValueError, "at least one spatial dimension"),
        ({"batch": 2.0}, TypeError, "batch is 2.0; expected an integer"),
        ({"batch": -1}, ValueError, "batch is -1; expected at least 0"),
        ({"batch": 10**5000}, ValueError, "batch has 16610 bits; expected an integer of 64 bits"),
        ({"groups": 0}, ValueError, "groups is 0; expected at least 1"),
        ({"groups": 4}, ValueError, "in_channels is 6; expected a multiple of the 4 groups"),
        ({"out_channels": 3}, ValueError, "out_channels is 3; expected a multiple of the 2"),
    ],
)
def test_a_problem_checks_its_fields(changed, error, message):
    fields = {
        "batch": 2, "in_channels": 6, "out_channels": 4, "input": (9, 7), "filter": (3, 2),
        "stride": (1, 1), "padding": ((1, 1), (0, 0)), "dilation": (1, 1), "groups": 2,
    }  # fmt: skip
    assert Problem(**fields).output == (9, 6)
    with pytest.raises(error, match=message):
        Problem(**fields | changed)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (of(Problem.of, 5, (3, 3, 2)), TypeError, "x_shape is 5; expected all sizes"),
        (of(Problem.of, (1, 8, 2), 5), TypeError, "w_shape is 5; expected all sizes"),
        (of(datasheet, 3), TypeError, "device is of type int; expected a name as 'rtx4090'"),
        (of(winrs_plan, LAYER, segments=2.5), TypeError, "segments is 2.5; expected an integer"),
        (of(winrs_plan, LAYER, segments=0), ValueError, "segments = 0; expected at least 1"),
        (of(winrs_plan, LAYER, workspace_limit="x"), TypeError, "workspace_limit is 'x'"),
        (of(winrs_plan, LAYER, device=3), TypeError, "device is of type int"),
        (of(gpu_plan, Request(LAYER, "forward", H100, TEXT)), TypeError, "type Algorithm"),
        (of(gpu_plan, Request(LAYER, "forward", TEXT)), TypeError, "type Device"),
    ],
)
def test_planners_check_their_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_problem_holds_pythons_integers():
    """Those of NumPy wrap: 100 channels of int8 are 10,000 with a filter of 100."""
    one: Any = np.int8(1)
    sizes: Any = np.array([1], "int8")
    p = Problem(one, 100 * one, one, sizes, sizes, sizes, ((0, 0),), (one,))
    assert p == Problem.of((1, 1, 100), (1, 1, 100))
    assert {type(v) for v in (p.batch, p.in_channels, *p.input, *p.filter)} == {int}
    assert hash(p) == hash(Problem.of((1, 1, 100), (1, 1, 100)))


def _check(make) -> None:
    """Either the text of what it makes names that again, or it is refused in one line."""
    refused = ""
    try:
        found = make()
    except (TypeError, ValueError) as error:
        found, refused = None, str(error)
    assert "\n" not in refused
    assert len(refused) < 500
    if found is None:
        assert refused
        return
    assert parse_algorithm(str(found)) == found
    assert hash(parse_algorithm(str(found))) == hash(found)


POINTS = (
    "best", "paper", "wincnn", " paper ", "papr", "", "0,1,-1,inf", "0, 1/2,-1 ,oo", "0,1,1,inf",
    "0,1,-1,2,-2,inf", "0,1e99,2,inf", "0,.5,-1/2,inf", "inf",
)  # fmt: skip
OPTIONS = st.sampled_from(
    [
        *(f"points={p}" for p in POINTS[:7]), *(f"scaling={s}" for s in (*SCALINGS, "none", "l3")),
        *("variant=balanced", "variant=two_level:32", "variant=two_level:007", "variant=x"),
        *("segments=3", "segments=0", "segments=2.5", "device=rtx4090", "device=RTX 4090"),
        *("device=x", "error=0.02", "error=1e-06", "error=nan", "error=inf", "error=0", "speed=9"),
        *("scaling", "=l1", ""),
    ]
)  # fmt: skip
PLACES = st.sampled_from(["2", "3", "4", "6", "8", "2x2", "4x2", "3x3", "x", "0", "2.0", "", "-1"])
TEXTS = st.builds(
    lambda kind, places, points, options: (
        ":".join([kind, *places]) + points + "".join(f";{o}" for o in options)
    ),
    st.sampled_from([*FORMS, "gama", ""]),
    st.lists(PLACES, max_size=3),
    st.sampled_from(["", *(f"@{p}" for p in POINTS)]),
    st.lists(OPTIONS, max_size=3),
)
USUAL = st.sampled_from([*FORMS.values(), "omega:4:2:3", "dwm:3x3:2x2", "gamma:4:2:3", "dwm"])


@settings(max_examples=400, deadline=None)
@given(TEXTS | st.builds(lambda t, o: ";".join([t, *o]), USUAL, st.lists(OPTIONS, max_size=2)))
def test_any_text_is_refused_or_round_trips(text):
    _check(lambda: parse_algorithm(text))


NUMBERS = st.sampled_from(
    [
        *(1, 2, 3, 4, 6, 8, np.int8(3), np.int64(2), True, 2.0, np.float32(3), Fraction(3), "3"),
        *(None, -1, 10**5000, (2, 3), [np.int16(3), 3], (2.5, 1), ()),
    ]
)  # fmt: skip
KEYWORDS = {
    "points": st.sampled_from([*POINTS, None, 3, (0, 1, -1, np.inf), [0, 0.5, 1, "inf"], b"best"]),
    "scaling": st.sampled_from([*SCALINGS, "none", None, "l3", 1, ["l1"]]),
    "variant": st.sampled_from(["balanced", "two_level:32", "two_level:12345678901", "", None, 3]),
    "segments": NUMBERS,
    "device": st.sampled_from(["h100", "NVIDIA H100 80GB HBM3", "", None, 3]),
    "error": st.sampled_from([0.1, np.float32(0.1), 1, Fraction(1, 3), "x", np.nan, 10**400, -1]),
    "products": NUMBERS,
}
MAKERS = {
    gamma: (3, ("points", "scaling", "variant")),
    omega: (3, ("points", "scaling", "segments")),
    winograd: (2, ("points", "scaling")),
    dwm: (2, ("points", "scaling", "variant", "error")),
    winrs: (0, ("points", "scaling", "segments", "device")),
    fft: (1, ("products",)),
}


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_arguments_are_refused_or_round_trip(data):
    make = data.draw(st.sampled_from(list(MAKERS)))
    count, names = MAKERS[make]
    usual = {gamma: (4, 2, 3), omega: (4, 2, 3), winograd: ((2, 4), (3, 3)), dwm: (), fft: (8,)}
    places = data.draw(st.tuples(*[NUMBERS] * count) | st.just(usual.get(make, ())))
    named = data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    _check(lambda: make(*places, **{name: data.draw(KEYWORDS[name]) for name in named}))
