"""Shapes as texts."""

from __future__ import annotations

import re

import pytest

from winolab.arguments import shapes


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1", 1),
        ("1x2", ((1, 1), (2, 2))),
        ("0:1x2", ((0, 1), (2, 2))),
        (" 0 : 1 X 2", ((0, 1), (2, 2))),
        ("0:1", ((0, 1),)),
        ("same", "same"),
    ],
)
def test_paddings_are_read(text: str, meant: object) -> None:
    found = shapes.ends(text)
    assert (tuple(map(tuple, found)) if isinstance(found, list | tuple) else found) == meant


@pytest.mark.parametrize("text", ["0:1,1,1", "1:2:3", "", "x", "-1", "0:x1", "٣"])
def test_a_padding_that_is_none_is_shown_as_it_was_given(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^padding {re.escape(repr(text))}; expected sizes"):
        shapes.ends(text)
