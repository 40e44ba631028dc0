"""Names of algorithms: the papers' own of tiles, and what a misspelled one is told."""

from __future__ import annotations

import pytest

from winolab import fft, parse_algorithm


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("F(4x4,3x3)@paper;scaling=l1", "winograd:4x4:3x3@paper;scaling=l1"),
        (" F(2, 3) ", "winograd:2:3"),
        ("F(6×6,3×3)", "winograd:6x6:3x3"),
    ],
)
def test_a_tile_is_an_algorithm(text: str, meant: str) -> None:
    assert parse_algorithm(text) == parse_algorithm(meant)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "winograd:4x4:3x3;scalng=l1",
            "has no option 'scalng'; its options: points, scaling; did you mean 'scaling'",
        ),
        ("direct;foo=1", "no option 'foo'; its options: variant"),
        ("fft:1000000000", "fft has the form 'fft:16:3', of numbers below 1000000000"),
        ("F(4x4,3)", "2 output and 1 filter sizes; expected as many"),
        ("F(4x4)", r"accepted are forms like .*'F\(4x4,3x3\)'"),
        ("F(4x4,3x3;scaling=l1", "unknown algorithm"),
        ("onednn:jit_wino_4x3", "is another library's; winolab.predict"),
    ],
)
def test_a_name_that_is_none_is_told_what_is(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        parse_algorithm(text)
    assert "\n" not in str(raised.value)


def test_how_long_an_fft_may_be_is_said() -> None:
    with pytest.raises(ValueError, match="expected sizes of 1 or more, below 1000000000, and 3 or"):
        fft(10**9)
