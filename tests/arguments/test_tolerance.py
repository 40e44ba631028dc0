"""A tolerance as callers state it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from winolab.arguments.tolerance import Tolerance, missed


@pytest.mark.parametrize(
    ("given", "kind", "most", "text"),
    [
        (1e-5, "predicted", 1e-5, "1e-05"),
        (np.float32(0.5), "predicted", 0.5, "0.5"),
        ("3e-7", "predicted", 3e-7, "3e-07"),
        (" proven:1e-4 ", "proven", 1e-4, "proven:0.0001"),
        ("componentwise:1e-5", "componentwise", 1e-5, "componentwise:1e-05"),
        ("direct:4", "direct", 4.0, "direct:4"),
    ],
)
def test_numbers_and_texts_are_read(given, kind, most, text) -> None:
    read = Tolerance.of(given)
    assert read == Tolerance(kind, most)
    assert Tolerance.of(read) is read
    assert str(read) == text
    assert Tolerance.of(None) is None


@pytest.mark.parametrize(
    "given",
    [0, -1e-5, np.inf, np.nan, "proven", "proven:", "sure:1e-5", "", 10**5000, Fraction(10**400)],
    ids=lambda given: str(given)[:9] if isinstance(given, str) else type(given).__name__,
)
def test_other_numbers_and_texts_are_refused_in_one_line(given) -> None:
    with pytest.raises(ValueError, match=r"; expected a number above 0, such as 1e-5, or 'proven:"):
        Tolerance.of(given)


@pytest.mark.parametrize("given", [True, [1e-5], 1j])
def test_other_types_are_refused(given) -> None:
    with pytest.raises(TypeError, match=r"tolerance is .*; expected a number"):
        Tolerance.of(given)


def test_what_is_said_to_be_had_is_enough() -> None:
    text = str(missed(Tolerance("predicted", 1e-9), 2.81e-7, "fp32", "direct"))
    assert text == (
        "tolerance 1e-09: the least that can be had in fp32 is 2.9e-07, by direct; "
        "allow more or take a wider precision"
    )
