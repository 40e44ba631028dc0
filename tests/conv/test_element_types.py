"""Elements, points, formats and exits of any types: values count, exact or rounded once.

Drawn by hypothesis, which makes a failure small; tests/random_problems.py has shapes and arguments.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.random_problems import check, on_numpy, refused
from tests.support.definition import DIRECTIONS, Geometry
from tests.support.drawn import Case
from tests.support.elements import DTYPES, FILLS, FLOATING, INTEGERS
from winolab import gamma, parse_algorithm, transforms, winograd

POOL = [Fraction(p) for p in ("0", "1", "-1", "2", "-2", "1/2", "-1/2", "3", "-3/4", "4")]
WHOLE: list[Any] = [int, np.int8, np.int16, np.int32, np.int64, np.uint8]
ANY: list[Any] = [Fraction, str]
INFINITE = [math.inf, np.inf, np.float32(np.inf), np.float64(np.inf), "inf"]
FORMATS = [
    "exact", "mp:24", "mp:53", "mp:113", "fp64", "fp32", "tf32", "bf16", "fp16", "fp32_split",
    "fp32,storage=bf16", "fp32,storage=fp8_e5m2", "fp16,transform=fp16", "bf16,filters=fp16",
    "fp32,accumulate=fp64,accumulation=unspecified", "tf32,accumulation=tensor_core:4:0:nearest",
]  # fmt: skip


@st.composite
def points(draw, alpha: int) -> list[Any]:
    """``alpha`` different points, each of a type that holds it."""
    finite = draw(st.permutations(POOL))[: alpha - 1]
    typed = []
    for p in finite:
        whole = WHOLE if p >= 0 else WHOLE[:-1]
        of = draw(st.sampled_from([*ANY, *(whole if p.denominator == 1 else [])]))
        typed.append(of(p) if of in ANY else of(p.numerator))
    return [*typed, draw(st.sampled_from(INFINITE))]


@st.composite
def cases(draw) -> Case:
    """A small layer by Γ or nested Winograd, of typed elements and points."""
    n, r = draw(st.integers(1, 4)), draw(st.integers(2, 3))
    made = draw(points(n + r - 1))
    nested = draw(st.booleans())
    direction = draw(st.sampled_from(DIRECTIONS if nested else DIRECTIONS[:2]))
    algorithm = winograd((n,), (r,), points=made) if nested else gamma(n + r - 1, n, r, points=made)
    precision = draw(st.sampled_from(FORMATS))
    unrounded = precision == "exact" or precision.startswith("mp:")
    kinds = sorted(DTYPES) if unrounded else [*FLOATING, *INTEGERS[:4]]
    exits = [*FLOATING, *(["object", "longdouble"] if unrounded else [])]
    exits += INTEGERS if precision == "exact" else []
    taps = r + draw(st.integers(0, 2))
    geometry = Geometry(
        1, 2, 1, (taps + draw(st.integers(0, 5)),), (taps,), (1,), ((1, 0),), (1,), 1
    )
    how = {
        "algorithm": algorithm, "precision": precision, "layout": "channels_last",
        "padding": ((1, 0),),
    }  # fmt: skip
    return Case(
        str(draw(st.integers(0, 1 << 20))), 0, direction, geometry,
        (draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))),
        (draw(st.sampled_from(FILLS)), draw(st.sampled_from(FILLS))),
        draw(st.sampled_from(["new", "given"])), draw(st.sampled_from([None, *exits])),
        draw(st.booleans()) and direction != "backward_filter", False, False, how,
    )  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(cases())
def test_values_count_whatever_holds_them(case: Case) -> None:
    if not refused(case):
        check(case, on_numpy(case))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_points_of_any_types_are_the_same_algorithm(data: st.DataObject) -> None:
    n, r = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    made = data.draw(points(n + r - 1))
    plain = [math.inf if "inf" in str(p) else Fraction(str(p)) for p in made]
    text = ",".join(map(str, plain))
    assert transforms(n, r, made) == transforms(n, r, plain)
    assert transforms(n, r, text) == transforms(n, r, plain)
    algorithm = gamma(n + r - 1, n, r, points=made)
    assert algorithm == parse_algorithm(str(algorithm))
    assert transforms(n, r, algorithm.points) == transforms(n, r, plain)
