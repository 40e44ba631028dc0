import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from winolab.algorithm import SCALINGS
from winolab.ref.algebra.program import is_dyadic, is_power_of_two, program
from winolab.ref.algebra.transforms import transforms
from winolab.ref.arithmetic.simulated import arithmetic

FAMILY = [(2, 3), (3, 2), (7, 2), (6, 3), (5, 4), (4, 5), (3, 6), (2, 7), (10, 7), (9, 8), (8, 9)]

entries = st.builds(Fraction, st.integers(-4, 4), st.integers(1, 3))


@st.composite
def matrix(draw):
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    return [[draw(entries) for _ in range(columns)] for _ in range(rows)]


def _fractions(array):
    return tuple(tuple(Fraction(v) for v in row) for row in array)


@settings(max_examples=150, deadline=None)
@given(matrix())
def test_a_program_computes_its_matrix_exactly(rows):
    p = program(rows)
    assert p.exact() == _fractions(rows)
    unit = np.array([[Fraction(int(i == j)) for j in range(p.inputs)] for i in range(p.inputs)])
    exact = p.evaluate(unit, arithmetic("exact"), axis=0)
    assert _fractions(exact) == _fractions(rows)


@settings(max_examples=100, deadline=None)
@given(matrix())
@example([[Fraction(3, 2), 1, 0], [Fraction(-3, 2), -1, Fraction(1, 2)]])
def test_a_program_is_no_longer_than_the_dense_product(rows):
    dense = sum(max(0, sum(v != 0 for v in row) - any(abs(v) == 1 for v in row)) for row in rows)
    assert program(rows).counts.instructions <= dense


@settings(max_examples=100, deadline=None)
@given(matrix())
def test_path_weights_bound_the_matrix(rows):
    weights, depths = program(rows).path_weights()
    for row, bound, depth in zip(rows, weights, depths, strict=True):
        assert all(abs(v) <= w for v, w in zip(row, bound, strict=True))
        assert depth >= 0


@settings(max_examples=150, deadline=None)
@given(matrix(), st.integers(-6, 6))
@example([[0, 0], [2, 2], [0, 0], [1, 0], [0, 1], [1, 1]], 2)  # of which all inputs are outputs
def test_a_scaled_program_multiplies_no_more_than_its_inputs(rows, exponent):
    p, scale = program(rows), Fraction(2) ** exponent
    scaled = p.scaled(scale)
    assert scaled.exact() == tuple(tuple(scale * Fraction(v) for v in row) for row in rows)
    assert scaled.counts.instructions <= p.counts.instructions + p.inputs


@pytest.mark.parametrize(("n", "r"), FAMILY)
@pytest.mark.parametrize("side", ["BT", "AT"])
def test_a_scaled_program_has_the_bits_of_scaled_inputs(n, r, side):
    p, run = getattr(transforms(n, r).programs, side), arithmetic("fp32")
    x = np.random.default_rng(0).standard_normal((p.inputs, 5000)).astype("float16")
    for scale in (Fraction(1, 16), Fraction(32)):
        scaled = p.scaled(scale)
        wide = x.astype("float32")
        expected = p.evaluate(wide * np.float32(scale), run, axis=0)
        assert np.array_equal(scaled.evaluate(wide, run, axis=0), expected)
        assert scaled.counts.instructions <= p.counts.instructions + 3


@pytest.mark.parametrize(("n", "r"), FAMILY)
@pytest.mark.parametrize("scaling", [None, *SCALINGS])
def test_equal_and_opposite_pairs_nearly_halve_the_work(n, r, scaling):
    t = transforms(n, r, "paper", scaling)
    for p, matrix in zip(
        (t.programs.AT, t.programs.G, t.programs.BT), (t.AT, t.G, t.BT), strict=True
    ):
        terms = sum(v != 0 for row in matrix for v in row)
        assert p.exact() == matrix
        assert p.counts.instructions <= (terms if t.alpha < 16 else 0.6 * terms)


@settings(max_examples=100, deadline=None)
@given(matrix())
def test_a_rowwise_program_has_one_chain_a_row(rows):
    p = program(rows, simplify=False)
    assert p.exact() == _fractions(rows)
    assert p.counts.instructions <= sum(v != 0 for row in rows for v in row)


def test_counts_of_lavin_and_gray():
    """F(2×2,3×3): 32, 28 and 24 (section 4.1); F(4,3): 13, 8 and 10 (section 4.3)."""
    small = transforms(2, 3, "paper").programs
    nested = (
        small.BT.counts.instructions * (4 + 4),
        small.G.counts.instructions * (3 + 4),
        small.AT.counts.instructions * (4 + 2),
    )
    assert nested == (32, 28, 24)
    large = transforms(4, 3, "paper").programs
    counts = [p.counts.instructions for p in (large.BT, large.G, large.AT)]
    assert all(ours <= theirs for ours, theirs in zip(counts, (13, 8, 10), strict=True))
    assert counts == [12, 8, 10]


def test_counts_tell_operations_apart():
    c = program([[4, 0], [3, 0], [1, 1], [1, 5]]).counts
    assert (c.shifts, c.multiplications, c.additions, c.fmas) == (1, 1, 1, 1)
    assert c.instructions == 4


def test_printed_python_computes_the_matrix():
    t = transforms(6, 3, "paper")
    for p, matrix in ((t.programs.BT, t.BT), (t.programs.G, t.G), (t.programs.AT, t.AT)):
        scope: dict[str, Any] = {"Fraction": Fraction}
        exec(p.python("f"), scope)
        columns = [
            scope["f"]([Fraction(int(i == j)) for i in range(p.inputs)]) for j in range(p.inputs)
        ]
        assert tuple(zip(*columns, strict=True)) == matrix


def test_printed_cuda_has_the_constants_of_the_simulation():
    """Every hexadecimal constant is the FP32 number nearest to one of the program's fractions."""
    p = transforms(8, 9, "paper").programs.G
    text = p.cuda("filter_transform")
    printed = {float.fromhex(c) for c in re.findall(r"-?0x1\.[0-9a-f]+p[+-]\d+", text)}
    run = arithmetic("fp32")
    needed = {float(run.constant(op.constant)) for op in p.ops if op.kind not in ("add", "sub")}
    assert printed == needed
    assert text.count("y[") == 16


def test_rounded_constants_change_only_constants():
    p = transforms(8, 9, "paper").programs.G
    rounded = p.with_constants(lambda q: Fraction(round(q, 7)))
    assert [op.kind for op in rounded.ops] == [op.kind for op in p.ops]
    assert rounded.exact() != p.exact()
    assert p.with_constants(lambda q: q) == p


def test_evaluation_in_fp32_follows_the_program():
    """Bit for bit what a hand-run of the same operations in correctly rounded FP32 gives."""
    p = program([[Fraction(1, 3), 1], [Fraction(-1, 3), 1]])
    x = np.random.default_rng(3).standard_normal((2, 50)).astype(np.float32)
    y = p.evaluate(x, arithmetic("fp32"), axis=0)
    third = Fraction(float(np.float32(1 / 3)))
    for column in range(50):
        a, b = (Fraction(float(v)) for v in x[:, column])
        for row, sign in ((0, 1), (1, -1)):
            exact = sign * third * a + b
            error = abs(Fraction(float(y[row, column])) - exact)
            assert error <= abs(exact) * Fraction(1, 2**24)


def test_a_wrong_axis_is_refused():
    with pytest.raises(ValueError, match="axis 1 has 5 entries; expected 4"):
        transforms(2, 3).programs.BT.evaluate(np.zeros((4, 5)), arithmetic("fp64"), axis=1)


def test_dyadic_and_powers_of_two():
    assert [is_dyadic(Fraction(q)) for q in ("3/4", "1/3", "5", "0")] == [True, False, True, True]
    assert [is_power_of_two(Fraction(q)) for q in ("1/8", "-4", "3", "1/3")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("precision", ["fp64", "fp16", "mp:60"])
def test_a_zero_row_is_zero_whatever_the_inputs(precision: str) -> None:
    run = arithmetic(precision)
    x = run.asarray(np.array([[np.inf, np.nan], [1.0, 2.0]]))
    with np.errstate(all="raise"):
        y = program([[0, 0], [0, -1]]).evaluate(x, run, axis=0)
    assert run.to_float64(y).tolist() == [[0, 0], [-1, -2]]


@pytest.mark.parametrize(("precision", "third"), [("fp16", 0x3555), ("bf16", 0x3EAB)])
def test_pairs_have_constants_rounded_to_their_16_bits(precision, third) -> None:
    """1/3 is 0x3555 in FP16 and 0x3eab in BF16, twice in a word; signs are the pairs' own."""
    made = program([[Fraction(1, 3), 0], [-1, 0], [Fraction(1, 3), -1]])
    text = made.cuda_pairs("transform", precision)
    assert f"0x{third * 0x10001:08x}u" in text
    assert "y[1] = -x[0];" in text
