"""A layer's shapes as texts: "128x96x96x64" inputs, "64x3x3" filters, "1x2" strides."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from winolab.arguments.values import NAMED_PADDINGS
from winolab.arguments.words import plural
from winolab.problem import Problem

INPUT = "128x96x96x64 (batch, sizes, channels)"
FILTER = "64x3x3 (output channels, taps)"
DIGITS = 18  # of a size: more than any array has
ENDS = r"\s*\d+\s*(:\s*\d+\s*)?"
PADDING = re.compile(f"{ENDS}(x{ENDS})*", re.ASCII | re.IGNORECASE)


def sizes(text: str, name: str, least: int, expected: str) -> tuple[int, ...]:
    """At least so many sizes. Raises ValueError that says what was expected."""
    parts = [part.strip() for part in text.lower().split("x")]
    if len(parts) < least or not all(part.isdecimal() and part.isascii() for part in parts):
        raise ValueError(f"{name} {text!r}; expected sizes such as {expected}")
    if any(len(part) > DIGITS for part in parts):
        raise ValueError(f"{name} {text[:60]!r}; expected sizes of at most {DIGITS} digits")
    return tuple(map(int, parts))


def each(text: str, name: str) -> int | tuple[int, ...]:
    """A number, or one a dimension."""
    values = sizes(text, name, 1, '"1", or one a dimension, "1x2"')
    return values[0] if len(values) == 1 else values


def problem(
    input: str,
    filter: str,
    *,
    stride: str = "1",
    padding: str = "0",
    dilation: str = "1",
    groups: int = 1,
) -> Problem:
    """The problem of these texts; IC of the filter is the input's over ``groups``.

    ``padding`` is "1", "1x2", "0:1x2" with low and high ends, or one of NAMED_PADDINGS. Raises
    ValueError as Problem.of.
    """
    x, w = sizes(input, "input", 3, INPUT), sizes(filter, "filter", 2, FILTER)
    if len(w) != len(x) - 1:
        raise ValueError(
            f"filter {filter} has {plural(len(w) - 1, 'spatial dimension')} and input {input} "
            f"has {len(x) - 2}; expected as many"
        )
    for name, text, channels in (("input", input, x[-1]), ("filter", filter, w[0])):
        if groups < 1 or channels % groups:
            kind = "channels" if name == "input" else "output channels"
            raise ValueError(
                f"groups = {groups}; expected a divisor of the {channels} {kind} of {name} {text}"
            )
    return Problem.of(
        x,
        (*w, x[-1] // groups),
        stride=each(stride, "stride"),
        padding=ends(padding),
        dilation=each(dilation, "dilation"),
        groups=groups,
    )


def ends(text: str) -> Any:
    """A number, or (low, high) pairs, one a dimension, or one of NAMED_PADDINGS."""
    if text in NAMED_PADDINGS:
        return text
    expected = '"1", "1x2", "0:1x2" with low and high ends, "same", "valid"'
    if not PADDING.fullmatch(text):
        raise ValueError(f"padding {text!r}; expected sizes such as {expected}")
    ends = [
        sizes(part.replace(":", "x"), "padding", 1, expected) for part in text.lower().split("x")
    ]
    if len(ends) == len(ends[0]) == 1:
        return ends[0][0]
    return [(each[0], each[-1]) for each in ends]


def padding_text(pairs: Iterable[tuple[int, int]]) -> str:
    """What ``problem`` reads these (low, high) pairs from."""
    return "x".join(str(lo) if lo == hi else f"{lo}:{hi}" for lo, hi in pairs)


def nonempty(problem: Problem) -> Problem:
    """The problem itself; ValueError where it has no multiply-adds."""
    if problem.macs == 0:
        raise ValueError(
            f"x{problem.x_shape} and w{problem.w_shape} leave nothing to compute; expected sizes "
            "above 0"
        )
    return problem
