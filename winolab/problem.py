"""A convolution problem: the shapes of one layer in all three directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from winolab.arguments.values import (
    Padding,
    Sizes,
    nearest,
    paddings,
    per_dimension,
    sequence,
    stated,
    whole,
)
from winolab.arguments.words import plural
from winolab.tile import MAX_ALPHA

Layout = Literal["channels_last", "channels_first"]
LAYOUTS = get_args(Layout)
Direction = Literal["forward", "backward_data", "backward_filter"]
# What callers name the operands and the result of each direction.
NAMES = {
    "forward": ("x", "w", "y"),
    "backward_data": ("dy", "w", "dx"),
    "backward_filter": ("x", "dy", "dw"),
}


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
        stride: Sizes = 1,
        padding: Padding = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        layout: Layout = "channels_last",
    ) -> Problem:
        """The problem that these logical shapes state.

        ``padding`` is an int, one per spatial dimension, a (low, high) pair per dimension, "valid",
        or "same_upper" or "same_lower" (TensorFlow's and ONNX's rule: ⌈input / stride⌉ outputs, the
        odd element behind or before); "same" is "same_upper".

        Raises ValueError naming the dimension that does not fit and what was expected, TypeError
        for arrays in place of their shapes.
        """
        check_layout(layout)
        x_shape, w_shape = stated("x_shape", x_shape), stated("w_shape", w_shape)
        ndim = len(x_shape) - 2
        if ndim < 1:
            raise ValueError(
                f"x has {plural(len(x_shape), 'dimension')}; expected batch, channels and at least "
                "one spatial dimension"
            )
        if len(w_shape) != len(x_shape):
            what = plural(len(w_shape), "dimension")
            raise ValueError(f"w has {what} and x has {len(x_shape)}; expected as many")
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
        groups = whole(groups, "groups")
        if groups < 1:
            raise ValueError(f"groups = {groups}; expected at least 1")
        if min(batch, channels, out_channels, *spatial) < 0:
            raise ValueError(f"x has sizes {x_shape} and w {w_shape}; expected none below 0")
        filter_ = tuple(taps)
        for d, r in enumerate(filter_):
            if r < 1:
                raise ValueError(f"filter size {r} in spatial dimension {d}; expected at least 1")
        if channels != w_channels * groups:
            raise ValueError(
                f"x has {plural(channels, 'channel')}; w's {plural(w_channels, 'input channel')} "
                f"in {plural(groups, 'group')} need "
                f"{w_channels * groups}{_meant_layout(x_shape, w_shape, groups, layout)}"
            )
        if out_channels % groups:
            had = plural(out_channels, "output channel")
            raise ValueError(f"w has {had}; expected a multiple of {groups}")
        strides = per_dimension(stride, ndim, "stride", 1)
        dilations = per_dimension(dilation, ndim, "dilation", 1)
        return cls(
            batch,
            channels,
            out_channels,
            tuple(spatial),
            filter_,
            strides,
            paddings(padding, spatial, filter_, strides, dilations),
            dilations,
            groups,
        )

    @classmethod
    def transposed(
        cls,
        y_shape: Sequence[int],
        w_shape: Sequence[int],
        *,
        output_padding: int | Sequence[int] = 0,
        stride: Sizes = 1,
        padding: Padding = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        layout: Layout = "channels_last",
    ) -> Problem:
        """The problem whose output is y, of the smallest input or one ``output_padding`` longer.

        That is below the larger of stride and dilation, as in PyTorch's transposed convolutions,
        whose result x is. Where it reaches a stride, windows that begin there are left out, which
        the high padding then says; it may be negative.

        Raises ValueError as ``of``, and for "same" with strides, which several inputs have.
        """
        check_layout(layout)
        y_shape, w_shape = stated("dy_shape", y_shape), stated("w_shape", w_shape)
        if len(y_shape) != len(w_shape) or len(y_shape) < 3:
            raise ValueError(
                f"dy has {plural(len(y_shape), 'dimension')} and w {len(w_shape)}; expected as "
                "many, batch, channels and at least one spatial dimension"
            )
        spatial = slice(2, None) if layout == "channels_first" else slice(1, -1)
        outputs, taps, ndim = y_shape[spatial], w_shape[spatial], len(w_shape) - 2
        strides = per_dimension(stride, ndim, "stride", 1)
        dilations = per_dimension(dilation, ndim, "dilation", 1)
        longer = per_dimension(output_padding, ndim, "output_padding", 0)
        if str(padding).startswith("same") and set(strides) != {1}:
            raise ValueError(f'padding "{padding}" with strides needs input_shape; give it')
        pairs = paddings(padding, outputs, taps, strides, dilations)
        inputs, ends = [], []
        for d, (o, r, s, t, more, (low, high)) in enumerate(
            zip(outputs, taps, strides, dilations, longer, pairs, strict=True)
        ):
            if more >= max(s, t):
                raise ValueError(
                    f"output_padding in spatial dimension {d} is {more}; expected less than the "
                    f"stride {s} or the dilation {t}"
                )
            size = (o - 1) * s + t * (r - 1) + 1 - low - high + more if o else 0
            if o and size < 1:
                why = f"padding {low, high} leaves nothing of dx; expected less"
                raise ValueError(f"spatial dimension {d}: {why}")
            inputs.append(size)
            ends.append((low, high - more // s * s))
        x = (y_shape[0], *inputs, w_shape[1 if layout == "channels_first" else -1] * groups)
        return replace(
            cls.of(
                in_layout(x, layout),
                w_shape,
                stride=strides,
                padding=pairs,
                dilation=dilations,
                groups=groups,
                layout=layout,
            ),
            padding=tuple(ends),
        )

    def __post_init__(self) -> None:
        self._make_exact()
        for d, size in enumerate(self.output):
            if size < 0 or (size == 0 and self.input[d] > 0):
                lo, hi = self.padding[d]
                raise ValueError(
                    f"spatial dimension {d}: the filter spans {plural(self.extent[d], 'input')}, "
                    f"but input {self.input[d]} with padding ({lo}, {hi}) has only "
                    f"{self.input[d] + lo + hi}"
                )

    def _make_exact(self) -> None:
        """Make every size an int and every list a tuple, of one length and in its range."""
        for name, least in (
            *(("batch", 0), ("in_channels", 0), ("out_channels", 0), ("groups", 1)),
            *(("filter", 0), ("input", 0), ("stride", 1), ("dilation", 1)),
        ):
            given = getattr(self, name)
            if name in ("filter", "input", "stride", "dilation"):
                found: Any = tuple(whole(v, f"a size of {name}") for v in sequence(name, given))
                low = min(found, default=least)
            else:
                low = found = whole(given, name)
            if low < least:
                raise ValueError(f"{name} is {given}; expected at least {least}")
            object.__setattr__(self, name, found)
        pairs = [sequence("padding", pair) for pair in sequence("padding", self.padding)]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError(f"padding is {self.padding}; expected a (low, high) pair a dimension")
        padding = tuple((whole(lo, "a padding"), whole(hi, "a padding")) for lo, hi in pairs)
        object.__setattr__(self, "padding", padding)
        if not self.filter:
            raise ValueError("a problem has at least one spatial dimension")
        for name in ("input", "stride", "padding", "dilation"):
            if (count := len(getattr(self, name))) != self.ndim:
                raise ValueError(
                    f"{name} has {plural(count, 'value')}; expected {self.ndim}, as the filter has "
                    "dimensions"
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

        Channels and inputs that are missing are as few as the groups and the filter need; along
        the last dimension as many as bring outputs for every tile.
        """
        least = [max(1, e - lo - hi) for e, (lo, hi) in zip(self.extent, self.padding, strict=True)]
        least[-1] += min(self.stride[-1] * MAX_ALPHA, 1 << 20)  # a stride may have 62 bits
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

    @property
    def depthwise(self) -> bool:
        """Whether every input channel is a group of its own."""
        return self.groups == self.in_channels

    def told(self, direction: str) -> str:
        """The problem in a line; what is not said of stride, dilation and groups is 1.

        >>> Problem.of((1, 9, 9, 8), (8, 3, 3, 4), stride=2, groups=2).told("forward")
        'forward x(1, 9, 9, 8) w(8, 3, 3, 4) padding ((0, 0), (0, 0)) stride (2, 2) groups 2'
        """
        text = f"{direction} x{self.x_shape} w{self.w_shape} padding {self.padding}"
        for name, size in (("stride", self.stride), ("dilation", self.dilation)):
            text += f" {name} {size}" if {*size} != {1} else ""
        return text + (f" groups {self.groups}" if self.groups > 1 else "")


def shapes(direction: str, problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Channels-last shapes of both operands and the result."""
    x, w, y = problem.x_shape, problem.w_shape, problem.y_shape
    return {"forward": (x, w, y), "backward_data": (y, w, x), "backward_filter": (x, y, w)}[
        direction
    ]


def in_layout(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """A channels-last shape as ``layout`` has it."""
    return (shape[0], shape[-1], *shape[1:-1]) if layout == "channels_first" else shape


def check_layout(layout: str) -> None:
    """Raise ValueError unless ``layout`` is one of LAYOUTS; CHWN is refused by name."""
    if layout == "CHWN":
        raise ValueError("layout CHWN is not supported; transpose to channels_last or _first")
    if layout not in LAYOUTS:
        near = _letters(str(layout).upper()) or nearest(str(layout), LAYOUTS)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"unknown layout {layout!r}; expected one of {', '.join(LAYOUTS)}{hint}")


def _letters(layout: str) -> str | None:
    """What frameworks' letters for axes mean: NHWC is channels_last, NCHW channels_first."""
    axes = layout.replace("C", "", 1)
    if not axes.startswith("N") or not set(axes[1:]) or not set(axes[1:]) <= set("DHWL"):
        return None
    return {1: "channels_first", len(layout) - 1: "channels_last"}.get(layout.find("C"))


def _meant_layout(x_shape: Any, w_shape: Any, groups: int, layout: str) -> str:
    """A hint where the channels would fit in the other layout."""
    other = LAYOUTS[1 - LAYOUTS.index(layout)]
    axis = 1 if other == "channels_first" else -1
    fits = x_shape[axis] == w_shape[axis] * groups
    return f"; did you mean layout={other!r}?" if fits else ""
