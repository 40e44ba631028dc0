from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab import (
    conv_backward_data,
    conv_backward_filter,
    conv_forward,
    decomposition,
    gamma,
    parse_algorithm,
    transforms,
)
from winolab.cli.sweep import POINTS, values
from winolab.device import DATASHEETS
from winolab.gpu.families.nested.source import made_of
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.measure import Case
from winolab.points import DIGITS, INFINITY, exact, parse_points, points_for, text_of, tile_of
from winolab.problem import Problem
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.algorithms.winrs.plan import plan as winrs_plan
from winolab.ref.cost.count import cost
from winolab.ref.error.metrics import error_ratio
from winolab.tile import Tile


def small(*numbers: int) -> Fraction:
    """A Fraction that holds NumPy's integers, of 8 bits."""
    eight: Any = [np.int8(n) for n in numbers]
    return Fraction(*eight)


# What a whole number may come as; all hold -9 to 9.
CARRIERS = (int, str, np.int8, np.int32, np.int64, Fraction, small)


def test_names_and_lists_are_told_apart():
    assert parse_points(None) == parse_points(" best ") == "best"
    assert parse_points("-3") == (Fraction(-3),)
    assert parse_points("inf") == (INFINITY,)
    assert text_of("2/4, oo,.5e1") == "1/2,inf,5"


@pytest.mark.parametrize(
    ("points", "error", "message"),
    [
        ("papr", ValueError, "unknown points 'papr'; expected one of best, paper, wincnn, kar"),
        ("", ValueError, "unknown points ''"),
        ("paper@best", ValueError, "unknown points 'paper@best'"),
        ("0,1,papr", ValueError, "point 'papr' is not a rational number"),
        ("0,1/0", ValueError, "point '1/0' is not a rational number"),
        ("0,1,2/2", ValueError, "point 1 is repeated"),
        ([], ValueError, "no points given"),
        (b"best", TypeError, "points of type bytes"),
        (0.5, TypeError, "points of type float"),
        ([0, 0.5], TypeError, "point 0.5 is not an exact number"),
        ([0, np.float32(1)], TypeError, r"point np.float32\(1.0\) is not an exact number"),
        ([0, None], TypeError, "point None is not an exact number"),
        ([0, -np.inf], TypeError, "point -inf is not an exact number"),
        (np.eye(2, dtype=int), TypeError, r"point array\(\[1, 0\]\) is not an exact number"),
        # Issue 42: these ran for ever.
        ("0,1e9000000", ValueError, f"a point has more than {DIGITS} digits"),
        ("0,1e-9000000", ValueError, f"a point has more than {DIGITS} digits"),
        ("0,1e" + "9" * 10**6, ValueError, f"a point has more than {DIGITS} digits"),
        ("0," + "9" * 10**6, ValueError, f"a point has more than {DIGITS} digits"),
        ([0, 10**9000], ValueError, f"a point has more than {DIGITS} digits"),
        ([0, Fraction(1, 10**DIGITS)], ValueError, f"a point has more than {DIGITS} digits"),
    ],
)
def test_what_is_no_point_is_refused(points, error, message):
    with pytest.raises(error, match=message) as raised:
        parse_points(points)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200


def test_points_have_up_to_so_many_digits():
    largest = 10**DIGITS - 1
    assert transforms(1, 2, [Fraction(largest - 1, largest), -largest]).alpha == 2


def test_a_fraction_of_numpys_integers_becomes_pythons():
    found = exact(small(100))
    assert found == 100
    assert {type(v) for v in (found.numerator, found.denominator)} == {int}
    assert exact(0.5) is None


def test_a_list_serves_tiles_of_as_many_states():
    assert points_for("0,1,-1,inf", Tile(4, 3)) == "best"
    assert points_for("0,1,-1,inf", Tile(4, 3), Tile(2, 3)) == "0,1,-1,inf"
    assert points_for("paper", Tile(4, 4)) == "paper"
    assert points_for("0,inf,x^2+1", Tile(2, 3)) == "best"
    assert points_for("0,inf,x^2+1", tile_of(2, 3, "0,inf,x^2+1")) == "0,inf,x^2+1"


def test_numpys_integers_of_issue_42():
    """14 outputs wrapped in int32 and divided by zero in int8."""
    whole = [0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 7, -7]
    expected = transforms(14, 3, [*whole, "inf"])
    for dtype in (np.int8, np.int32, np.int64):
        assert transforms(14, 3, [*np.array(whole, dtype), np.inf]) == expected


def test_numpys_integers_poison_no_cache():
    """A tuple of them equals one of Fractions, so a cache may hand out what was built of them."""
    points = [0, 11, -11, 12, -12]  # no other test's
    first = transforms(4, 3, [*np.array(points, np.int8), np.inf])
    text = ",".join(map(str, points)) + ",inf"
    assert gamma(6, 4, 3, points=[*np.array(points, np.int8), np.inf]) == parse_algorithm(
        f"gamma:6:4:3@{text}"
    )
    for made in (first, transforms(4, 3, text)):
        entries = [v for matrix in (made.AT, made.G, made.BT) for row in matrix for v in row]
        assert {type(v.numerator) for v in entries} == {int}
        assert max(abs(v) for v in entries) == 121 * 144  # 11² · 12²


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_points_of_any_type_mean_the_same(data):
    alpha = data.draw(st.integers(2, 9))
    r = data.draw(st.integers(1, alpha))
    finite = data.draw(
        st.lists(
            st.fractions(-9, 9, max_denominator=5), min_size=alpha, max_size=alpha, unique=True
        )
    )
    points = [*finite[1:], INFINITY] if data.draw(st.booleans()) else finite

    def carried(p):
        if p == INFINITY:
            return data.draw(st.sampled_from((INFINITY, "inf", "∞", np.float32(np.inf))))
        if p.denominator == 1:
            return data.draw(st.sampled_from(CARRIERS))(int(p))
        return data.draw(st.sampled_from((p, str(p), small(*p.as_integer_ratio()))))

    expected = gamma(alpha, alpha - r + 1, r, points=points)
    found = gamma(alpha, alpha - r + 1, r, points=map(carried, points))
    assert parse_algorithm(str(found)) == found == expected
    assert hash(found) == hash(expected)
    built = transforms(alpha - r + 1, r, [carried(p) for p in points])
    assert built == transforms(alpha - r + 1, r, points)
    for row in (*built.AT, *built.G, *built.BT):
        assert {type(v) for v in row} == {Fraction}
        assert {type(v.numerator) for v in row} == {int}


SIX, EIGHT = "0,1,-1,2,-2,inf", "0,1,-1,2,-2,1/2,-1/2,inf"
# Algorithms whose list of points serves one of their tiles; x, w, with a padding of 1.
LISTED = [
    (f"gamma:6:4:3@{SIX}", (1, 8, 2), (3, 3, 2)),  # issue 42: of 8 columns
    (f"gamma:6:4:3@{SIX}", (2, 5, 9, 2), (3, 2, 7, 2)),
    (f"winograd:4x2:3x3@{SIX}", (1, 9, 7, 2), (2, 3, 3, 2)),
    ("winograd:4x2:3x3@0,1,-1,inf", (1, 9, 7, 2), (2, 3, 3, 2)),
    (f"dwm:3:4@{SIX}", (1, 12, 2), (2, 5, 2)),
    ("dwm:3:2@0,1,inf", (1, 12, 2), (2, 5, 2)),
]
GRADIENTS = [
    (f"omega:8:3:6@{EIGHT}", (1, 8, 2), (3, 3, 2)),
    (f"omega:8:3:6@{EIGHT}", (2, 5, 10, 2), (2, 2, 3, 2)),
    (f"winrs@{EIGHT}", (1, 10, 2), (2, 3, 2)),
    ("winrs@0,1,-1,inf", (2, 5, 28, 2), (2, 3, 3, 2)),
    (f"winograd:3x2:4x2@{SIX}", (1, 9, 7, 2), (2, 3, 3, 2)),
    (f"dwm:3:4@{SIX}", (1, 12, 2), (2, 5, 2)),
]


def _whole(shape, seed):
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(object)


@pytest.mark.parametrize(("text", "x_shape", "w_shape"), LISTED)
def test_tiles_that_are_chosen_inside_take_their_own_points(text, x_shape, w_shape):
    x, w = _whole(x_shape, 0), _whole(w_shape, 1)
    how = {"padding": 1, "precision": "exact"}
    expected = conv_forward(x, w, **how)
    assert (conv_forward(x, w, algorithm=text, **how) == expected).all()
    dx = conv_backward_data(expected, w, x_shape, **how)
    assert (conv_backward_data(expected, w, x_shape, algorithm=text, **how) == dx).all()


@pytest.mark.parametrize(("text", "x_shape", "w_shape"), GRADIENTS)
def test_tiles_of_gradients_take_their_own_points(text, x_shape, w_shape):
    x = _whole(x_shape, 0)
    dy = _whole(Problem.of(x_shape, w_shape, padding=1).y_shape, 1)
    how = {"padding": 1, "precision": "exact"}
    found = conv_backward_filter(x, dy, w_shape, algorithm=text, **how)
    assert (found == conv_backward_filter(x, dy, w_shape, **how)).all()


def test_the_tile_of_a_list_has_its_points():
    of = programs_of(parse_algorithm(f"gamma:6:4:3@{SIX}"))
    assert of(Tile(4, 3)) == transforms(4, 3, SIX).programs
    assert of(Tile(2, 3)) == transforms(2, 3, "best").programs
    assert of(Tile(4, 3)) != transforms(4, 3, "best").programs


@pytest.mark.parametrize(
    ("text", "input_", "filter_", "direction"),
    [
        (f"gamma:6:4:3@{SIX}", "1x8x4", "3x3", "forward"),
        (f"winograd:4x2:3x3@{SIX}", "1x9x7x4", "2x3x3", "forward"),
        (f"dwm:3:4@{SIX}", "1x12x4", "2x5", "forward"),
        (f"dwm;error=1e-06;points={SIX}", "1x12x4", "2x5", "forward"),
        (f"winograd:3x2:4x2@{SIX}", "1x9x7x4", "2x3x3", "backward_filter"),
        (f"omega:8:3:6@{EIGHT}", "1x8x4", "3x3", "backward_filter"),
        (f"winrs@{EIGHT}", "2x5x28x4", "2x3x3", "backward_filter"),
    ],
)
def test_accuracy_and_cost_know_them(text, input_, filter_, direction):
    case = Case(text, input_, filter_, padding="1", direction=direction, sample="full")
    row = case.measure()
    assert row["relative_rms"] <= 1e-6
    assert not row["bound_ratio"] > 1  # winrs has none
    algorithm = parse_algorithm(case.algorithm)
    costs = [
        cost(case.problem, chosen, direction)
        for chosen in (algorithm, replace(algorithm, points="best"))
    ]
    assert costs[0].products == costs[1].products


def test_a_budget_is_kept_with_a_list_of_points():
    problem = Problem.of((1, 40, 16), (16, 3, 16))
    chosen = decomposition(problem, f"dwm;error=1e-6;points={SIX}", "fp32")
    assert {c.tile.r for cuts in chosen.cuts for c in cuts} <= {1, 2, 3}


def test_a_list_that_serves_no_kernel_of_winrs_is_refused():
    problem = Problem.of((2, 5, 28, 2), (2, 3, 3, 2), padding=1)
    with pytest.raises(
        ValueError, match=r"5 points given; .* as many as a kernel of winrs in fp32"
    ):
        winrs_plan(problem, points="0,1,-1,2,inf")
    assert winrs_plan(problem, points=EIGHT).segments


def test_a_list_that_the_plan_of_winrs_leaves_unused_is_refused():
    """The kernels that the plan picks count, not all that there are; a tap alone has no points."""
    x, dy = np.ones((1, 20, 20, 2)), np.ones((1, 18, 18, 2))
    with pytest.raises(ValueError, match=r"4 points given; .* 8, as many as Ω8\(3,6\) of the plan"):
        conv_backward_filter(x, dy, (2, 3, 3, 2), algorithm="winrs@0,1,-1,inf")
    found = conv_backward_filter(x, dy[:, :1], (2, 20, 3, 2), algorithm=f"winrs@{EIGHT}")
    assert found == pytest.approx(18)
    single = conv_backward_filter(
        x, np.ones((1, 20, 20, 2)), (2, 1, 1, 2), algorithm=f"winrs@{EIGHT}"
    )
    assert (single == 400).all()


def test_a_tile_is_named_once():
    with pytest.raises(ValueError, match=r"alpha = n \+ r - 1 = 6, as many as F\(4,3\) has states"):
        parse_algorithm("winograd:4x4:3x3@0,1,-1,inf")


@pytest.mark.parametrize(
    ("text", "precision", "direction"),
    [
        (f"gamma:6:4:3@{SIX}", "fp32_split", "forward"),
        (f"gamma:6:4:3@{SIX}", "fp16", "backward_data"),
        (f"gamma:8:6:3@{EIGHT}", "fp32_ffma", "forward"),
        (f"winograd:4x2:3x3@{SIX}", "fp32", "forward"),
        (f"omega:8:3:6@{EIGHT}", "fp32", "backward_filter"),
        (f"omega:8:3:6@{EIGHT}", "fp16", "backward_filter"),
        (f"winrs@{EIGHT}", "fp32", "backward_filter"),
        ("winrs@0,1,-1,inf", "fp16", "backward_filter"),
    ],
)
def test_kernels_have_the_points_of_the_reference(text, precision, direction):
    problem = Problem.of((4, 20, 26, 64), (64, 3, 3, 64), padding=1)
    algorithm = parse_algorithm(text)
    found: Any = plan(Request(problem, direction, DATASHEETS["h100"], algorithm, precision))
    found = found.primary
    assert predicted_rms(found) < (1e-5 if precision != "fp16" else 1e-1)
    assert found.source()
    if algorithm.kind == "winograd":
        assert made_of(algorithm.tiles, found.points)[1].points == transforms(2, 3, "best").points
        assert made_of(algorithm.tiles, found.points)[0].points == transforms(4, 3, SIX).points
    else:
        assert found.points == algorithm.points_of(found.tiles[0])


def test_the_error_of_a_tile_that_a_list_does_not_serve_is_its_bests():
    assert error_ratio(Tile(2, 3), SIX) == error_ratio(Tile(2, 3))
    assert error_ratio(Tile(4, 3), SIX) > error_ratio(Tile(4, 3))


@pytest.mark.parametrize("text", ["0,−1,1,inf", "0,−1/2,inf", "−1", "0,x^2−2,inf", "1−i,−1"])
def test_a_minus_as_papers_print_it(text: str) -> None:
    assert parse_points(text) == parse_points(text.replace("−", "-"))
    assert values(f"gamma:4:2:3@{text},direct", POINTS) == [f"gamma:4:2:3@{text}", "direct"]
