"""The generator of random problems: what it draws, and that a wrong result is told."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import random_problems
from tests.random_problems import CALLS, Wrong, check, main, on_numpy
from tests.support.definition import DIRECTIONS, FLOATS, exact, rounded
from tests.support.drawn import draw
from tests.support.elements import DTYPES

CASES = [draw("draws", number) for number in range(1500)]
# Exact, of floats, into objects: what every test below may spoil.
PLAIN = next(
    case
    for case in CASES
    if case.precision == "exact" and case.out == "new" and not case.out_dtype and not case.refusal
    and set(case.dtypes) <= {"float32", "int32"} and case.expected.size > 3
)  # fmt: skip


def test_the_reference_is_the_definition() -> None:
    wrong = [error for _, error, _ in random_problems.run("tests", 150) if error]
    assert not wrong, wrong[0]


def test_a_problem_follows_from_seed_and_number() -> None:
    one, other = draw("s", 5), draw("s", 5)
    assert str(one) == str(other)
    assert one.operands[0].tobytes() == other.operands[0].tobytes()
    assert str(draw("s", 6)) != str(one) != str(draw("t", 5))


def test_the_whole_space_is_drawn() -> None:
    served = [case for case in CASES if not case.refusal]

    def seen(of):
        return {of(case) for case in served}

    def kind(case):
        return str(case.algorithm).replace("@", ":").replace(";", ":").split(":")[0]

    assert seen(lambda c: len(c.geometry.filter)) == set(range(1, 7))
    assert seen(kind) == {"None", "direct", "winograd", "gamma", "dwm", "fft", "omega", "winrs"}
    assert {(kind(c), c.direction) for c in served} >= {
        *((k, d) for k in ("direct", "winograd", "dwm", "fft") for d in DIRECTIONS),
        *(("gamma", d) for d in DIRECTIONS[:2]),
        *((k, DIRECTIONS[2]) for k in ("omega", "winrs")),
    }
    assert seen(lambda c: c.dtypes[0]) == seen(lambda c: c.dtypes[1]) == set(DTYPES)
    assert seen(lambda c: c.arguments["layout"]) == {"channels_last", "channels_first"}
    assert seen(lambda c: c.out) == {"new", "given", "over"}
    assert seen(lambda c: c.prepared) == seen(lambda c: c.special) == {False, True}
    assert 0.02 <= 1 - len(served) / len(CASES) <= 0.04
    own = {"None", "exact", "fp64", "fp32", "tf32", "bf16", "fp16", "fp32_split", "fp32_ffma"}
    assert seen(lambda c: str(c.precision)) >= own | {"mp:24", "mp:200"}
    orders = {"sequential", "pairwise", "kahan", "two_level", "tensor_core", "unspecified"}
    assert {o for o in orders for c in served if f"accumulation={o}" in str(c.precision)} == orders
    depthwise = [c for c in served if c.geometry.groups == c.geometry.channels > 1]
    assert {c.geometry.out_channels // c.geometry.groups for c in depthwise} >= {1, 2, 3}
    assert {0, 1} <= seen(lambda c: c.geometry.batch) & seen(lambda c: min(c.geometry.input))
    assert {"same", "valid"} <= seen(lambda c: str(c.arguments["padding"]))
    assert {1, 5} <= seen(lambda c: max(c.geometry.stride)) & seen(
        lambda c: max(c.geometry.dilation)
    )


@given(
    st.sampled_from(["float64", "float32", "float16", "bfloat16"]),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_rounding_is_numpys(dtype: str, value: float) -> None:
    with np.errstate(all="ignore"):
        found = float(np.array(value).astype(DTYPES[dtype]))
    expected = rounded(Fraction(value), *FLOATS[dtype])
    assert float(expected) == found
    small = rounded(Fraction(value) * Fraction(2) ** -900, *FLOATS["float64"])
    assert float(small) == float(Fraction(value) / 2**900)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda y: y[:1] if len(y) > 1 else y[..., :0], "shape"),
        (lambda y: y.astype(np.float64), "dtype float64, expected object"),
        (lambda y: y + Fraction(1, 10**9), r"expected .* within 0"),
        (lambda y: np.vectorize(np.int64, otypes=[object])(y * 0), "is an int64"),
    ],
)
def test_a_wrong_result_is_told(wrong, message: str) -> None:
    y = on_numpy(PLAIN)
    check(PLAIN, y)
    with pytest.raises(Wrong, match=message):
        check(PLAIN, wrong(y))


def test_the_last_place_of_a_float_counts() -> None:
    case = replace(PLAIN, out_dtype="float32")
    right = np.vectorize(lambda q: float(rounded(q, *FLOATS["float32"])))(case.expected)
    y = right.astype(np.float32)
    check(case, y)
    y.reshape(-1)[2] = np.nextafter(y.reshape(-1)[2], np.float32(np.inf))
    with pytest.raises(Wrong, match="within 0"):
        check(case, y)
    y.reshape(-1)[2] = np.nan
    with pytest.raises(Wrong, match="NaN"):
        check(case, y)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda a, b, *_, **__: a.__setitem__((0,) * a.ndim, 77), "operand a was written to"),
        (lambda a, b, *_, **__: b.__setitem__((0,) * b.ndim, 77), "operand b was written to"),
    ],
)
def test_what_is_not_the_results_own_is_watched(monkeypatch, spoil, message: str) -> None:
    def call(*args, **kwargs):
        spoil(*args)
        return honest(*args, **kwargs)

    honest = CALLS[PLAIN.direction]
    monkeypatch.setitem(CALLS, PLAIN.direction, call)
    with pytest.raises(Wrong, match=message):
        on_numpy(PLAIN)


def test_memory_around_the_arrays_is_watched(monkeypatch) -> None:
    def call(*args, out, **kwargs):
        base = out
        while base.base is not None:
            base = base.base
        base[-1] = 1
        return honest(*args, out=out, **kwargs)

    case = replace(PLAIN, out="given")
    honest = CALLS[case.direction]
    on_numpy(case)
    monkeypatch.setitem(CALLS, case.direction, call)
    with pytest.raises(Wrong, match="memory beside"):
        on_numpy(case)


def test_a_failure_comes_with_the_line_that_reruns_it(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(random_problems, "on_numpy", lambda case: case.expected + 1)
    rows = tmp_path / "rows.jsonl"
    count = ["--seed", "7", "--count", "3", "--first", "2", "--rows", str(rows)]
    assert main(count) == 1
    printed = capsys.readouterr().out
    assert "python -m tests.random_problems --seed 7 --first 2 --count 1\n" in printed
    assert "3 problems of seed 7, 3 wrong" in printed
    row = json.loads(rows.read_text())
    assert (row["seed"], row["first"], row["count"], row["wrong"]) == ("7", 2, 3, 3)
    assert {"commit", "numpy", "seconds", "drawn"} <= set(row)
    assert row["by"] == "one process"


def test_a_row_says_whose_processes_ran() -> None:
    assert random_problems.by("local", 2) == "Dask, local"
    assert random_problems.by("tcp://there:8786", 1) == "Dask"  # and no address
    assert random_problems.by(None, 2) == "2 processes"


def test_elements_are_the_numbers_that_they_hold() -> None:
    assert exact(np.float32(0.1)) == Fraction(13421773, 2**27)
    assert exact(np.longdouble(1) + np.longdouble(2) ** -60) == 1 + Fraction(1, 2**60)
    assert exact(mpmath.mpf(-3) / 4) == Fraction(-3, 4)
    assert exact(np.uint64(2**64 - 1)) == 2**64 - 1
