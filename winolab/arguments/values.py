"""What callers give, read in one place: integers, one or one a dimension, paddings, names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any, Literal, get_args

from winolab.arguments.words import plural

NamedPadding = Literal["same", "same_upper", "same_lower", "valid"]
NAMED_PADDINGS = get_args(NamedPadding)
Sizes = int | Sequence[int]  # one, or one a spatial dimension
Padding = int | NamedPadding | Sequence[int | Sequence[int]]
# Far beyond any layer; keeps a mistyped padding from asking for terabytes.
MAX_PADDING = 4096
LIKENESS = 0.7  # of difflib: "fp_32" is like "fp32" (0.89), "fp8" not like "fp64" (0.57)


def per_dimension(value: int | Sequence[int], ndim: int, name: str, least: int) -> tuple[int, ...]:
    """An integer of every spatial dimension, of one or as many. Raises ValueError, TypeError."""
    values = listed(value, ndim)
    if len(values) != ndim:
        raise ValueError(f"{name} has {plural(len(values), 'value')}; {one_or_each(ndim)}")
    for d, v in enumerate(values):
        if whole(v, f"{name} in spatial dimension {d}") < least:
            raise ValueError(f"{name} in spatial dimension {d} is {v}; expected at least {least}")
    return tuple(map(int, values))


def one_or_each(ndim: int) -> str:
    """How many values of as many dimensions a message expects."""
    return "expected one" if ndim == 1 else f"expected one, or {ndim}, one a dimension"


def _values(value: Any) -> tuple[Any, ...] | None:
    """The values of a list; None of what is none, as a text, whose letters are no values."""
    try:
        return None if isinstance(value, (str, bytes, bytearray)) else tuple(value)
    except TypeError:
        return None


def listed(value: Any, count: int) -> tuple[Any, ...]:
    """The values, or ``count`` times the value that stands for all."""
    found = _values(value)
    return (value,) * count if found is None else found


def sequence(name: str, value: Any) -> tuple[Any, ...]:
    """The values of a list. Raises TypeError for what is none."""
    found = _values(value)
    if found is None:
        raise TypeError(f"{name} is {value!r}; expected a list, a value a dimension")
    return found


def whole(value: Any, name: str) -> int:
    """The Python integer that ``value`` is, of whatever type, in 64 bits.

    Raises TypeError for what is none, ValueError for a larger one.
    """
    try:
        found = int(index(value))
    except TypeError:
        raise TypeError(f"{name} is {value!r}; expected an integer") from None
    if found.bit_length() > 63:
        raise ValueError(f"{name} has {found.bit_length()} bits; expected an integer of 64 bits")
    return found


def stated(name: str, shape: Any) -> tuple:
    """The sizes of a shape. Raises TypeError for what is none, as an array."""
    if getattr(shape, "ndim", 1) > 1:
        raise TypeError(f"{name} is an array; expected its shape, as array.shape")
    sizes = _values(shape)
    if sizes is None:
        such = (64, 3, 3, 64) if name in ("filter_shape", "w_shape") else (32, 56, 56, 64)
        raise TypeError(f"{name} is {shape!r}; expected all sizes, as {such}")
    return sizes


def layer_shapes(input_shape: Any, filter_shape: Any) -> tuple[tuple, tuple]:
    """The sizes of the arguments of these names. Raises as ``stated``."""
    return stated("input_shape", input_shape), stated("filter_shape", filter_shape)


def counted(text: str) -> int | None:
    """The number that a text of up to nine decimal digits is; None of another text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def paddings(
    padding: Any,
    spatial: Sequence[int],
    filter_: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> tuple[tuple[int, int], ...]:
    """A (low, high) pair of every spatial dimension, of numbers or one of NAMED_PADDINGS."""
    ndim = len(filter_)
    if isinstance(padding, str):
        if padding not in NAMED_PADDINGS:
            near = nearest(padding, NAMED_PADDINGS)
            hint = f"; did you mean {near!r}?" if near else ""
            names = ", ".join(f'"{name}"' for name in NAMED_PADDINGS)
            raise ValueError(f"padding {padding!r}; expected numbers or one of {names}{hint}")
        if padding == "valid":
            return ((0, 0),) * ndim
        sizes = zip(spatial, filter_, stride, dilation, strict=True)
        totals = [_to_same(*of_dimension) for of_dimension in sizes]
        odd_first = padding == "same_lower"
        lows = [(total + odd_first) // 2 for total in totals]
        return tuple((low, total - low) for low, total in zip(lows, totals, strict=True))
    values = listed(padding, ndim)
    if len(values) != ndim:
        raise ValueError(f"padding has {plural(len(values), 'value')}; {one_or_each(ndim)}")
    return tuple(
        _pair(value, f"padding in spatial dimension {d}") for d, value in enumerate(values)
    )


def _pair(value: Any, name: str) -> tuple[int, int]:
    """(low, high) of one dimension's padding."""
    pair = listed(value, 2)
    if len(pair) != 2:
        raise ValueError(f"{name} is {value}; expected an integer or a pair (low, high)")
    low, high = (whole(v, name) for v in pair)
    if min(low, high) < 0:
        raise ValueError(f"{name} is {value}; expected >= 0")
    if max(low, high) > MAX_PADDING:
        raise ValueError(f"{name} is {value}; most is {MAX_PADDING}")
    return low, high


def _to_same(size: int, taps: int, stride: int, dilation: int) -> int:
    """What both ends of one dimension need for an output of ⌈size / stride⌉ (TensorFlow's rule)."""
    return max(0, (-(-size // stride) - 1) * stride + dilation * (taps - 1) + 1 - size)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``name``, or that it begins; None where none is alike."""
    lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lower, 1, LIKENESS)
    begun = [one for one in lower if len(name) > 2 and one.startswith(name.lower())]
    return lower[(close or begun)[0]] if close or len(begun) == 1 else None
