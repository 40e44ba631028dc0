"""What defines the three convolutions: sums of products, one at a time, in exact arithmetic.

Nothing of the package is used here: what its results are held to may not share its mistakes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

DIRECTIONS = ("forward", "backward_data", "backward_filter")
# precision, emin, emax of what NumPy and ml_dtypes round to
FLOATS = {
    "float64": (53, -1022, 1023),
    "float32": (24, -126, 127),
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float8_e5m2": (3, -14, 15),
    "longdouble": (64, -16382, 16383),
}


@dataclass(frozen=True)
class Geometry:
    """The shapes of a layer, per spatial dimension."""

    batch: int
    channels: int
    out_channels: int
    input: tuple[int, ...]
    filter: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def output(self) -> tuple[int, ...]:
        """Windows that fit; none of an empty input."""
        return tuple(
            (i + lo + hi - d * (r - 1) - 1) // s + 1 if i else 0
            for i, r, s, (lo, hi), d in zip(
                self.input, self.filter, self.stride, self.padding, self.dilation, strict=True
            )
        )

    @property
    def x_shape(self) -> tuple[int, ...]:
        return (self.batch, *self.input, self.channels)

    @property
    def w_shape(self) -> tuple[int, ...]:
        return (self.out_channels, *self.filter, self.channels // self.groups)

    @property
    def y_shape(self) -> tuple[int, ...]:
        return (self.batch, *self.output, self.out_channels)

    def shapes(self, direction: str) -> tuple[tuple[int, ...], ...]:
        """Shapes of the two operands and the result, channels last."""
        x, w, y = self.x_shape, self.w_shape, self.y_shape
        return {
            "forward": (x, w, y), "backward_data": (y, w, x), "backward_filter": (x, y, w)
        }[direction]  # fmt: skip

    @property
    def products(self) -> int:
        """Multiplications of the definition, those with padding included."""
        return math.prod(self.y_shape) * math.prod(self.w_shape[1:])

    def meetings(self) -> Iterator[tuple[int, int, int]]:
        """Flat positions of an input, a tap and an output that meet."""
        along = []
        for d, (size, taps, count) in enumerate(
            zip(self.input, self.filter, self.output, strict=True)
        ):
            low = self.padding[d][0]
            found = [
                (self.stride[d] * o + self.dilation[d] * t - low, t, o)
                for o in range(count)
                for t in range(taps)
            ]
            along.append([(i, t, o) for i, t, o in found if 0 <= i < size])
        for meeting in product(*along):
            i = t = o = 0
            for d, (i_d, t_d, o_d) in enumerate(meeting):
                i = i * self.input[d] + i_d
                t = t * self.filter[d] + t_d
                o = o * self.output[d] + o_d
            yield i, t, o


def convolved(direction: str, g: Geometry, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The result, channels last, as an object array of Fractions."""
    (a_whole, a_scale), (b_whole, b_scale) = whole(a), whole(b)
    total = [0] * math.prod(g.shapes(direction)[2])
    per, outs = g.channels // g.groups, g.out_channels // g.groups
    inputs, taps, outputs = map(math.prod, (g.input, g.filter, g.output))
    where = list(g.meetings())
    for n, oc in product(range(g.batch), range(g.out_channels)):
        first = oc // outs * per
        for i, t, o in where:
            y = (n * outputs + o) * g.out_channels + oc
            x = (n * inputs + i) * g.channels + first
            w = (oc * taps + t) * per
            for c in range(per):
                if direction == "forward":
                    total[y] += a_whole[x + c] * b_whole[w + c]
                elif direction == "backward_data":
                    total[x + c] += a_whole[y] * b_whole[w + c]
                else:
                    total[w + c] += a_whole[x + c] * b_whole[y]
    result = np.empty(len(total), object)
    result[:] = [Fraction(v, a_scale * b_scale) for v in total]
    return result.reshape(g.shapes(direction)[2])


def whole(array: np.ndarray) -> tuple[list[int], int]:
    """Integers, and what they are divided by to be the elements."""
    values = [exact(v) for v in array.reshape(-1)]
    scale = math.lcm(*(v.denominator for v in values))
    return [v.numerator * (scale // v.denominator) for v in values], scale


def exact(v: Any) -> Fraction:
    """The number that an element of an array is."""
    if isinstance(v, (int, Fraction, Decimal)):
        return Fraction(v)
    if hasattr(v, "_mpf_"):
        sign, significand, exponent, _ = v._mpf_
        size = Fraction(int(significand)) * Fraction(2) ** int(exponent)
        return -size if sign else size
    if isinstance(v, np.integer):
        return Fraction(int(v))
    if np.asarray(v).dtype == np.longdouble:
        return Fraction(*map(int, v.as_integer_ratio()))
    return Fraction(float(v))


def rounded(q: Fraction | float, precision: int, emin: int, emax: float) -> Fraction | float:
    """To nearest, ties to even, in a binary format; infinity where its range ends."""
    if not q or q in (math.inf, -math.inf):
        return q
    q = Fraction(q)
    size = abs(q)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    spacing = Fraction(2) ** (max(exponent, emin) - precision + 1)
    result = round(q / spacing) * spacing  # half to even
    if emax != math.inf and abs(result) >= Fraction(2) ** (int(emax) + 1):
        return math.inf if q > 0 else -math.inf
    return result
