"""Operands of eight bits and their scales: INT8 and FP8, simulated.

Transforms are FP32. Before they are multiplied, transformed elements are divided by a scale and
rounded to the grid of what multiplies them: integers of ``bits`` bits, symmetric about 0, or FP8
numbers. A scale is the largest magnitude that shares it over the largest number of the grid, so
that nothing is clipped; all of the convolution's tiles are looked at before the first product.
Sums of integers are exact (32 bits hold 133,000 products of eight-bit ones), those of FP8 products
are FP32's in order. A sum is multiplied by both scales in FP32 and transformed back. Direct
convolution has one state, its data: it is the usual quantised convolution.

Scales per state are what tap-wise quantisation (Andri et al. 2022, 2209.12982) learns; here they
are the data's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from winolab.ref.arithmetic import accumulate
from winolab.ref.arithmetic.accumulate import Accumulation
from winolab.ref.arithmetic.exact import Arithmetic, Carrier
from winolab.ref.arithmetic.formats import FORMATS, Format, nearest_name

# What shares a scale: all states of a tensor; of filters, an output channel; a state; both.
SHARED = ("tensor", "channel", "state", "state_channel")
POWERS = "pow2"  # scales are powers of two
BITS = range(2, 17)
LEAST = 2.0**-126  # a scale: FP32 divides by it
NAME = re.compile(r"int(\d{1,2})|fp8_e4m3|fp8_e5m2")


SEQUENTIAL = Accumulation.parse("sequential")


class Single(Arithmetic):
    """FP32 numbers, each operation rounded once; what is multiplied is a subclass's."""

    @property
    def storage(self) -> Format:
        """The format of the data, of the transforms and of the results."""
        return FORMATS["fp32"]

    def asarray(self, x: ArrayLike) -> Carrier:
        with np.errstate(all="ignore"):
            return self.storage.nearest(x).astype(np.float32)

    def constant(self, q: Fraction | int) -> Any:
        return np.float32(self.storage.round_fraction(q))

    def to_float64(self, y: Carrier) -> NDArray[np.float64]:
        return np.asarray(y, np.float64)

    def unforeseen(self) -> Exception:
        return ValueError(
            f"{self.name} rounds by scales that its data have, so that nothing is known before: "
            "measure it by winolab.accuracy, or take another precision"
        )

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return accumulate.fma(a, b, c, self.storage, np.dtype(np.float32))


@dataclass(frozen=True)
class Quantized(Single):
    """Products of ``grid`` numbers, "int8" or "fp8_e4m3", whose scales are ``shared``.

    ``powers``: scales are powers of two. ``scales`` of the input's and of the filter's states are
    found in the data (``of_states``).
    """

    grid: str
    shared: str = "tensor"
    powers: bool = False
    scales: tuple[Any, Any] | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return ":".join([self.grid, self.shared, *[POWERS] * self.powers])

    @property
    def whole(self) -> bool:
        """Whether the grid is integers."""
        return self.grid.startswith("int")

    @property
    def largest(self) -> float:
        """The grid's largest number."""
        return float(2 ** (int(self.grid[3:]) - 1) - 1) if self.whole else FORMATS[self.grid].max

    def error(self, peak: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """What rounding changes, for a scale of elements of that magnitude at most: an absolute
        bound and one relative to the element, which add up."""
        scale = self.scale(peak) * (2 if self.powers else 1)
        if self.whole:
            return scale / 2, 0.0
        grid = FORMATS[self.grid]
        return scale * grid.underflow, grid.unit_roundoff

    def rounded(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The grid's nearest numbers, ties to even; what is beyond its largest becomes that."""
        x = np.clip(x, -self.largest, self.largest)
        return np.rint(x) if self.whole else FORMATS[self.grid].round(x)

    def of_states(self, v: Iterable[Carrier], u: Carrier) -> Quantized:
        channels = "channel" in self.shared
        of_v = [np.zeros((len(u), 1, 1)), *(peaks(block, (1, 2)) for block in v)]
        sides = [np.max(of_v, axis=0), peaks(u, (1,) if channels else (1, 2))]
        if not self.shared.startswith("state"):
            sides = [side.max(axis=0, keepdims=True) for side in sides]
        return replace(self, scales=tuple(map(self.scale, sides)))

    def scale(self, peak: NDArray[np.float64]) -> NDArray[np.float64]:
        """What elements of that magnitude at most are divided by, FP32 numbers."""
        with np.errstate(all="ignore"):
            found = np.maximum(peak / self.largest, LEAST)
            if self.powers:
                return np.exp2(np.ceil(np.log2(found)))
            return found.astype(np.float32).astype(np.float64)

    def matmul(self, a: Carrier, b: Carrier) -> Carrier:
        """a (states, M, K) @ b (states, K, N), each rounded to the grid, times their scales."""
        if self.scales is None:
            raise ValueError(f"{self.name} has no scales yet; expected of_states' result")
        of_a, of_b = self.scales
        with np.errstate(all="ignore"):
            left, right = self.rounded(a / of_a), self.rounded(b / of_b)
            if not self.whole:
                fp8, fp32 = FORMATS[self.grid], self.storage
                total = accumulate.matmul(left, right, SEQUENTIAL, fp8, fp32, True)
            elif self.largest**2 * a.shape[-1] < 2**53:
                total = np.matmul(left, right)
            else:
                raise ValueError(
                    f"{self.name} sums {a.shape[-1]} products; expected sums below 2^53, which the "
                    "simulation holds: take fewer channels or bits"
                )
            return (of_a * of_b).astype(np.float32) * total.astype(np.float32)


def peaks(x: Carrier, axes: tuple[int, ...]) -> NDArray[np.float64]:
    """Largest magnitudes over these axes, which stay, of length 1."""
    return np.abs(np.asarray(x, np.float64)).max(axis=axes, keepdims=True, initial=0.0)


def parsed(text: str) -> Quantized | None:
    """The arithmetic of "int8", "int8:state", "fp8_e4m3:channel:pow2"; None of other names.

    Raises ValueError for unknown scales and numbers of bits.
    """
    grid, *how = text.split(":")
    found = NAME.fullmatch(grid)
    if not found:
        return None
    if found[1] and int(found[1]) not in BITS:
        raise ValueError(f"precision {grid!r}; expected {BITS[0]} to {BITS[-1]} bits, as int8")
    powers = how[-1:] == [POWERS]
    shared = (how[:-1] if powers else how) or [SHARED[0]]
    if len(shared) > 1 or shared[0] not in SHARED:
        wrong = ":".join(shared)
        known = [*SHARED, *(f"{name}:{POWERS}" for name in SHARED)]
        raise ValueError(f"unknown scales {wrong!r} of {text!r}{nearest_name(wrong, known)}")
    return Quantized(grid if not found[1] else f"int{int(found[1])}", shared[0], powers)
