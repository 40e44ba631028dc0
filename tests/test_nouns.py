from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab import Algorithm, Problem, Tile, direct, gamma, parse_algorithm, winograd
from winolab.nouns import FORMS


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


@pytest.mark.parametrize(
    ("x", "w", "options", "message"),
    [
        ((1, 2), (1, 2), {}, "expected batch, channels and at least one"),
        ((1, 8, 2), (3, 3, 3, 2), {}, "w has 4 dimensions and x has 3"),
        ((1, 8, 2), (3, 3, 5), {}, "x has 2 channels; w's 5 input channels in 1 group"),
        ((1, 8, 4), (3, 3, 2), {"groups": 2}, "w has 3 output channels, not a multiple of 2"),
        ((1, 8, 2), (3, 0, 2), {}, "0 taps in spatial dimension 0"),
        ((1, 9, 8, 2), (3, 3, 9, 2), {}, "spatial dimension 1: the filter spans 9 inputs"),
        ((1, 8, 2), (3, 3, 2), {"padding": -1}, "padding in spatial dimension 0 is -1"),
        ((1, 8, 2), (3, 3, 2), {"padding": 10**6}, "most is 4096"),
        ((1, 8, 2), (3, 3, 2), {"padding": "full"}, "padding 'full'; expected numbers"),
        ((1, 8, 2), (3, 3, 2), {"padding": (1, 1)}, "padding has 2 values; expected one"),
        ((1, 8, 2), (3, 3, 2), {"padding": "same", "stride": 2}, "needs stride 1"),
        ((1, 8, 2), (3, 3, 2), {"stride": 0}, "stride in spatial dimension 0 is 0"),
        ((1, 8, 2), (3, 3, 2), {"dilation": (1, 2)}, "dilation has 2 values; expected one or 1"),
        ((1, 8, 2), (3, 3, 2), {"groups": 0}, "groups = 0; expected at least 1"),
        ((1, 8, 2), (3, 3, 2), {"layout": "CHWN"}, "CHWN is not supported; transpose"),
        ((1, 8, 2), (3, 3, 2), {"layout": "NHWC"}, "unknown layout 'NHWC'; expected one of"),
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
    for kind, (form, _) in FORMS.items():
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
        ("winograd:4x4:3", "2 output sizes but 1 filter sizes"),
        ("direct:3", "malformed"),
        ("", "unknown algorithm ''"),
    ],
)
def test_unknown_text_is_refused_with_what_is_accepted(text, message):
    with pytest.raises(ValueError, match=message):
        parse_algorithm(text)


def test_an_algorithm_of_another_type_is_refused():
    with pytest.raises(TypeError, match="algorithm is of type int, no Algorithm and no text"):
        parse_algorithm(3)  # type: ignore[arg-type]


def test_algorithms_are_hashable_values():
    assert len({gamma(8, 6, 3), parse_algorithm("gamma:8:6:3"), Algorithm("direct")}) == 2
