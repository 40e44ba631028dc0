"""A convolution problem, the shapes of one layer in all three directions; a tile F(n,r)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any

from winolab.hints import nearest

LAYOUTS = ("channels_last", "channels_first")
NAMED_PADDINGS = ("same", "same_upper", "same_lower", "valid")
# What callers name the operands and the result of each direction.
NAMES = {
    "forward": ("x", "w", "y"),
    "backward_data": ("dy", "w", "dx"),
    "backward_filter": ("x", "dy", "dw"),
}
MAX_ALPHA = 32


@dataclass(frozen=True, order=True)
class Tile:
    """The minimal filtering algorithm F(n, r): n outputs of an r-tap filter (Lavin & Gray, 3)."""

    n: int
    r: int

    def __post_init__(self) -> None:
        for name in ("n", "r"):
            object.__setattr__(self, name, whole(getattr(self, name), f"{name} of a tile F(n, r)"))
        if self.n < 1 or self.r < 1:
            raise ValueError(f"F({self.n},{self.r}) needs at least one output and one tap")
        if self.alpha > MAX_ALPHA:
            raise ValueError(
                f"F({self.n},{self.r}) has alpha = n + r - 1 = {self.alpha}; "
                f"at most {MAX_ALPHA} is supported"
            )

    @property
    def alpha(self) -> int:
        """Inputs of a tile, and its multiplications."""
        return self.n + self.r - 1

    def __str__(self) -> str:
        return f"F({self.n},{self.r})"


@dataclass(frozen=True)
class Problem:
    """The shapes of one convolution layer, per spatial dimension, for all three directions.

    x is (N, *input, IC), w is (OC, *filter, IC/groups), y is (N, *output, OC). Paddings are (low,
    high) pairs; a negative one, as adjoint problems have, cuts. :meth:`of` takes what callers give.

    Raises TypeError where a size is no integer, ValueError where sizes do not fit each other.
    """

    batch: int
    in_channels: int
    out_channels: int
    input: tuple[int, ...]
    filter: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @classmethod
    def of(
        cls,
        x_shape: Sequence[int],
        w_shape: Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int | Sequence[int]] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        layout: str = "channels_last",
    ) -> Problem:
        """The problem that these logical shapes state.

        ``padding`` is an int, one per spatial dimension, a (low, high) pair per dimension, "valid",
        or "same_upper" or "same_lower" (TensorFlow's and ONNX's rule: ⌈input / stride⌉ outputs, the
        odd element behind or before); "same" is "same_upper".

        Raises ValueError naming the dimension that does not fit and what was expected.
        """
        check_layout(layout)
        ndim = len(x_shape) - 2
        if ndim < 1:
            raise ValueError(
                f"x has {len(x_shape)} dimensions; expected batch, channels and at least one "
                "spatial dimension"
            )
        if len(w_shape) != len(x_shape):
            raise ValueError(f"w has {len(w_shape)} dimensions and x has {len(x_shape)}")
        if layout == "channels_first":
            batch, channels, *spatial = x_shape
            out_channels, w_channels, *taps = w_shape
        else:
            batch, *spatial, channels = x_shape
            out_channels, *taps, w_channels = w_shape
        batch, channels, *spatial = (whole(n, "a size of x") for n in (batch, channels, *spatial))
        out_channels, w_channels, *taps = (
            whole(n, "a size of w") for n in (out_channels, w_channels, *taps)
        )
        if min(batch, channels, out_channels, *spatial) < 0:
            raise ValueError(f"x has sizes {x_shape} and w {w_shape}; expected none below 0")
        filter_ = tuple(taps)
        for d, r in enumerate(filter_):
            if r < 1:
                raise ValueError(f"the filter has {r} taps in spatial dimension {d}")
        groups = whole(groups, "groups")
        if groups < 1:
            raise ValueError(f"groups = {groups}; expected at least 1")
        if channels != w_channels * groups:
            raise ValueError(
                f"x has {channels} channels; w's {w_channels} input channels in {groups} group(s) "
                f"need {w_channels * groups}{_meant_layout(x_shape, w_shape, groups, layout)}"
            )
        if out_channels % groups:
            raise ValueError(f"w has {out_channels} output channels, not a multiple of {groups}")
        strides = _per_dimension(stride, ndim, "stride", 1)
        dilations = _per_dimension(dilation, ndim, "dilation", 1)
        return cls(
            batch,
            channels,
            out_channels,
            tuple(spatial),
            filter_,
            strides,
            _pairs(padding, spatial, filter_, strides, dilations),
            dilations,
            groups,
        )

    def __post_init__(self) -> None:
        self._make_exact()
        for d, size in enumerate(self.output):
            if size < 0 or (size == 0 and self.input[d] > 0):
                lo, hi = self.padding[d]
                raise ValueError(
                    f"spatial dimension {d}: the filter spans {self.extent[d]} inputs, but input "
                    f"{self.input[d]} with padding ({lo}, {hi}) has only {self.input[d] + lo + hi}"
                )

    def _make_exact(self) -> None:
        """Make every size an int and every list a tuple, of one length and in its range."""
        for name, least in (
            *(("batch", 0), ("in_channels", 0), ("out_channels", 0), ("groups", 1)),
            *(("filter", 0), ("input", 0), ("stride", 1), ("dilation", 1)),
        ):
            given = getattr(self, name)
            if name in ("filter", "input", "stride", "dilation"):
                found: Any = tuple(whole(v, f"a size of {name}") for v in _sequence(name, given))
                low = min(found, default=least)
            else:
                low = found = whole(given, name)
            if low < least:
                raise ValueError(f"{name} is {given}; expected at least {least}")
            object.__setattr__(self, name, found)
        pairs = [_sequence("padding", pair) for pair in _sequence("padding", self.padding)]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError(f"padding is {self.padding}; expected a (low, high) pair a dimension")
        padding = tuple((whole(lo, "a padding"), whole(hi, "a padding")) for lo, hi in pairs)
        object.__setattr__(self, "padding", padding)
        if not self.filter:
            raise ValueError("a problem has at least one spatial dimension")
        for name in ("input", "stride", "padding", "dilation"):
            if (count := len(getattr(self, name))) != self.ndim:
                raise ValueError(
                    f"{name} has {count} values; expected {self.ndim}, as the filter has dimensions"
                )
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; expected a multiple of the {self.groups} "
                    "groups"
                )

    @property
    def ndim(self) -> int:
        """Number of spatial dimensions."""
        return len(self.filter)

    @property
    def extent(self) -> tuple[int, ...]:
        """Inputs that a dilated filter spans."""
        return tuple(d * (r - 1) + 1 for d, r in zip(self.dilation, self.filter, strict=True))

    @property
    def output(self) -> tuple[int, ...]:
        """Output sizes; an input of size 0 has an output of size 0."""
        sizes = []
        for i, e, s, (lo, hi) in zip(
            self.input, self.extent, self.stride, self.padding, strict=True
        ):
            sizes.append((i + lo + hi - e) // s + 1 if i else 0)
        return tuple(sizes)

    @property
    def x_shape(self) -> tuple[int, ...]:
        return (self.batch, *self.input, self.in_channels)

    @property
    def w_shape(self) -> tuple[int, ...]:
        return (self.out_channels, *self.filter, self.in_channels // self.groups)

    @property
    def y_shape(self) -> tuple[int, ...]:
        return (self.batch, *self.output, self.out_channels)

    @property
    def macs(self) -> int:
        """Multiply-adds of direct convolution; effective FLOP is twice that."""
        return math.prod(self.y_shape) * math.prod(self.filter) * (self.in_channels // self.groups)

    @property
    def empty(self) -> bool:
        """Whether x, w or y has no elements; what is computed of them is all zeros, or nothing."""
        return 0 in (*self.x_shape, *self.w_shape, *self.y_shape)

    @property
    def without_images(self) -> Problem:
        """One of no images, all other sizes 1 or more: it asks no more than this, and can be tried.

        Channels and inputs that are missing are as few as the groups and the filter need.
        """
        least = (max(1, e - lo - hi) for e, (lo, hi) in zip(self.extent, self.padding, strict=True))
        return replace(
            self,
            batch=0,
            in_channels=self.in_channels or self.groups,
            out_channels=self.out_channels or self.groups,
            input=tuple(i or some for i, some in zip(self.input, least, strict=True)),
        )

    @property
    def unit(self) -> bool:
        """Whether stride and dilation are 1 everywhere, as tiled algorithms need."""
        return set(self.stride) | set(self.dilation) == {1}


def shapes(direction: str, problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Channels-last shapes of both operands and the result."""
    x, w, y = problem.x_shape, problem.w_shape, problem.y_shape
    return {"forward": (x, w, y), "backward_data": (y, w, x), "backward_filter": (x, y, w)}[
        direction
    ]


def check_layout(layout: str) -> None:
    """Raise ValueError unless ``layout`` is one of LAYOUTS; CHWN is refused by name."""
    if layout == "CHWN":
        raise ValueError("layout CHWN is not supported; transpose to channels_last or _first")
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}; expected one of {', '.join(LAYOUTS)}")


def _meant_layout(x_shape: Any, w_shape: Any, groups: int, layout: str) -> str:
    """A hint where the channels would fit in the other layout."""
    other = LAYOUTS[1 - LAYOUTS.index(layout)]
    axis = 1 if other == "channels_first" else -1
    fits = x_shape[axis] == w_shape[axis] * groups
    return f"; did you mean layout={other!r}?" if fits else ""


def _per_dimension(value: int | Sequence[int], ndim: int, name: str, least: int) -> tuple[int, ...]:
    values = listed(value, ndim)
    if len(values) != ndim:
        raise ValueError(f"{name} has {len(values)} values; expected one or {ndim}")
    for d, v in enumerate(values):
        if whole(v, f"{name} in spatial dimension {d}") < least:
            raise ValueError(f"{name} in spatial dimension {d} is {v}; expected at least {least}")
    return tuple(map(int, values))


def listed(value: Any, count: int) -> tuple[Any, ...]:
    """The values, or ``count`` times the value that stands for all."""
    try:
        return tuple(value)
    except TypeError:
        return (value,) * count


def _sequence(name: str, value: Any) -> tuple[Any, ...]:
    """The values of a list. Raises TypeError for what is none."""
    try:
        return tuple(value)
    except TypeError:
        raise TypeError(f"{name} has {value!r}; expected a value a spatial dimension") from None


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


def counted(text: str) -> int | None:
    """The number that a text of up to nine decimal digits is; None of another text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _pairs(padding, spatial, filter_, stride, dilation) -> tuple[tuple[int, int], ...]:
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
        totals = [padding_to_same(*of_dimension) for of_dimension in sizes]
        odd_first = padding == "same_lower"
        lows = [(total + odd_first) // 2 for total in totals]
        return tuple((low, total - low) for low, total in zip(lows, totals, strict=True))
    values = listed(padding, ndim)
    if len(values) != ndim:
        raise ValueError(f"padding has {len(values)} values; expected one, or one per {ndim}")
    return tuple(
        _pair(value, f"padding in spatial dimension {d}") for d, value in enumerate(values)
    )


def _pair(value: Any, name: str) -> tuple[int, int]:
    """(low, high) of one dimension's padding."""
    pair = (value, value) if isinstance(value, str) else listed(value, 2)
    if len(pair) != 2:
        raise ValueError(f"{name} is {value}; expected an integer or a pair (low, high)")
    low, high = (whole(v, name) for v in pair)
    if min(low, high) < 0:
        raise ValueError(f"{name} is {value}; expected >= 0")
    if max(low, high) > MAX_PADDING:
        raise ValueError(f"{name} is {value}; most is {MAX_PADDING}")
    return low, high


def padding_to_same(size: int, taps: int, stride: int, dilation: int) -> int:
    """What both ends of one dimension need for an output of ⌈size / stride⌉ (TensorFlow's rule)."""
    return max(0, (-(-size // stride) - 1) * stride + dilation * (taps - 1) + 1 - size)


# Far beyond any layer; keeps a mistyped padding from asking for terabytes.
MAX_PADDING = 4096
