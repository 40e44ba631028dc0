"""FP32 numbers as sums of low-precision parts: how they are scaled, split and multiplied.

A number v is hi + lo + …, each part the rest rounded to the product format, so that products of
parts are exact in FP32 (Ootomo & Yokota 2022, Recovering single precision accuracy from Tensor
Cores while surpassing the FP32 theoretical peak performance, IJHPCA 36:475). Of the products of n
parts those of order i + j < n are summed, the smallest first: lo·hi, hi·lo, hi·hi.

FP16 has few exponents, so a tensor is scaled by a power of two before it is transformed, as its
largest magnitude allows: |v| < 2^15. Then |v − hi − lo| ≤ max(2^-23 |v|, 2^-25).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from winolab.arguments.values import whole
from winolab.ref.arithmetic.accumulate import pieces
from winolab.ref.arithmetic.formats import Format

Array = NDArray[np.float64]
# log2 below which every scaled and transformed number stays: half of FP16's range, so that no
# rounding of a transform reaches its end.
CEILING = 15
LOWEST, HIGHEST = -126, 127  # of an FP32 factor
# What a caller may give: exponents of scales, the least of which serves the largest FP32 numbers
# whatever the transform, and of magnitudes.
GIVEN, PEAKS = (-113, 126), (-149, 127)
# Exponents that a kernel leaves above the largest element of a sample of its input.
HEADROOM = 2


RULES = ("absmax", "peaks", "given")


@dataclass(frozen=True)
class Power:
    """A power of two for one tensor.

    rule "absmax": from its largest magnitude, 2^value below what that allows; "peaks": from that
    magnitude's exponent, the value, which is known; "given": 2^value.
    """

    rule: str = "absmax"
    value: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", whole(self.value, "the exponent of a scale"))
        if self.rule not in RULES:
            raise ValueError(f"rule {self.rule!r} of a scale; expected one of {', '.join(RULES)}")

    def of_data(self, x: NDArray) -> Power:
        """With the exponent of the tensor's largest magnitude where the rule asks for it."""
        return Power("peaks", exponent(peak(x)) + self.value) if self.rule == "absmax" else self

    def exponent(self, gain: Fraction) -> int:
        """For a transform whose largest absolute row sum is ``gain``."""
        if self.rule == "absmax":
            raise ValueError("scale 'absmax' depends on the data; expected Scale.of_data's result")
        if self.rule == "given":
            return self.value
        return min(HIGHEST, max(LOWEST, CEILING - 1 - self.value - ceil_log2(gain)))


@dataclass(frozen=True)
class Scale:
    """Powers of two by which both tensors are multiplied before they are transformed.

    Text: "absmax", "absmax:2:0", "peaks:3:-7", "11:18"; with one number, "peaks:3" or "11", the
    second tensor's is "absmax".
    """

    a: Power = Power()
    b: Power = Power()

    @classmethod
    def parse(cls, text: str) -> Scale | None:
        """Read the text form; "none" is None. Raises ValueError."""
        if text in ("none", "absmax"):
            return None if text == "none" else cls()
        rule, fields = "given", text.split(":")
        if fields[0] in ("peaks", "absmax"):
            rule, *fields = fields
        try:
            powers = [Power(rule, int(field)) for field in fields]
            return cls(powers[0], *powers[1:])
        except (ValueError, TypeError, IndexError):
            raise ValueError(
                f"scale {text!r}; expected 'absmax', 'none', two exponents such as '11:18', or "
                "'peaks:3:-7', the exponents of the tensors' largest magnitudes; with one number, "
                "'11' or 'peaks:3', the second tensor's is found in its data"
            ) from None

    @classmethod
    def of_caller(cls, value: Scale | str | int | Sequence[int]) -> Scale:
        """A scale's text, or one or two exponents, as a caller gives them.

        Raises ValueError for what no FP32 data have or need.
        """
        if isinstance(value, (int, Sequence)) and not isinstance(value, str):
            value = ":".join(map(str, value if isinstance(value, Sequence) else (value,)))
        scale = value
        if isinstance(value, str):
            with suppress(ValueError):
                scale = cls.parse(value)
        if not isinstance(scale, Scale) or scale.a.rule == "absmax":
            raise ValueError(
                f"scale {value!r}; expected exponents, as '11:18' or 'peaks:3:-7'; without a scale "
                "they are found in the data"
            )
        for name, power in (("first", scale.a), ("second", scale.b)):
            low, high = PEAKS if power.rule == "peaks" else GIVEN
            if power.rule != "absmax" and not low <= power.value <= high:
                raise ValueError(
                    f"scale {scale}: exponent {power.value} of the {name} tensor; expected {low} "
                    f"to {high}, which serve all of FP32"
                )
        return scale

    @property
    def known(self) -> bool:
        """Whether it is stated, if of one tensor only, and not found in the data."""
        return {self.a.rule, self.b.rule} != {"absmax"}

    def __str__(self) -> str:
        if self == Scale():
            return "absmax"
        alone = self.b == Power() and self.a.rule != "absmax"
        powers = [self.a] if alone else [self.a, self.b]
        rule = [] if self.a.rule == "given" else [self.a.rule]
        return ":".join([*rule, *(str(power.value) for power in powers)])

    def of_data(self, a: NDArray, b: NDArray) -> Scale:
        """With the exponents of these tensors' largest magnitudes where the rules ask for them."""
        return Scale(self.a.of_data(a), self.b.of_data(b))

    def exponents(self, gains: tuple[Fraction, Fraction]) -> tuple[int, int]:
        """The exponents for transforms whose largest absolute row sums are ``gains``."""
        return self.a.exponent(gains[0]), self.b.exponent(gains[1])


def peak(x: NDArray) -> float:
    """The largest finite magnitude."""
    size = np.abs(np.asarray(x, np.float64))
    return float(np.max(size, initial=0.0, where=np.isfinite(size)))


def exponent(size: float) -> int:
    """⌊log2⌋ of a magnitude; of 0, what scales by 1."""
    return math.frexp(size)[1] - 1 if size else CEILING - 1


def ceil_log2(q: Fraction) -> int:
    """⌈log2 q⌉, exactly."""
    power = q.numerator.bit_length() - q.denominator.bit_length() - 1
    while Fraction(2) ** power < q:
        power += 1
    return power


def halves(total: int) -> tuple[int, int]:
    """The exponents of two FP32 factors whose product is 2^-total, the first ⌊total/2⌋'s."""
    return -(total // 2), -(total - total // 2)


def split(x: Array, fmt: Format, parts: int) -> list[Array]:
    """Numbers of the format whose sum is nearly x, the largest first, rounded by way of FP32."""
    found = []
    for _ in range(parts):
        found.append(fmt.round(x.astype(np.float32).astype(np.float64)))
        x = x - found[-1]
    return found


def products(parts: int) -> int:
    """Products of parts that are summed for one product."""
    return parts * (parts + 1) // 2


def left(fmt: Format, parts: int, precision: int) -> float:
    """Bound of |v − Σ parts| / |v| for a v of ``precision`` bits, where nothing underflows.

    With 2^e ≤ |v| the first rest is at most 2^(e−p); below that, its binade is lower by one more,
    so that n parts leave at most 2^(e − np − n + 1): nothing, if v has no bits there. Rounding more
    than 24 bits by way of FP32 adds 2^-24 of the last rest but one, and moves a first one that is
    nearly 2^(e−p) by no more.
    """
    bits = parts * fmt.precision + parts - 1
    more = parts * 2.0 ** (-24 - (parts - 1) * fmt.precision) if precision > 24 else 0.0
    return 2.0**-bits + more if bits < precision else 0.0


def left_square(fmt: Format, parts: int, precision: int) -> float:
    """E[(v − Σ parts)²] / 2^2e of numbers of ``precision`` random bits in one binade 2^e.

    The last rest but one is uniform below 2^(e − (n−1)(p+1) + 1): in its j-th binade from above,
    with chance 2^-j, rounded to a spacing of S, from multiples of U = 2^(e − precision + 1). Ties
    to even give (S² + 2U²)/12.
    """
    if parts == 1:
        return fmt.unit_roundoff**2 / 3
    unit = 2.0 ** (1 - precision)
    top = 2.0 ** (1 - fmt.precision - (parts - 1) * (fmt.precision + 1) + 1)
    spacings = [top / 2**j for j in range(1, 64) if top / 2**j > unit]
    return sum(0.5 ** (j + 1) * (s * s + 2 * unit * unit) / 12 for j, s in enumerate(spacings))


def dropped(fmt: Format, parts: int) -> float:
    """Bound of the products of parts that are not summed, relative to the product."""
    return (products(parts) - parts) * fmt.unit_roundoff**parts


def dropped_square(fmt: Format, parts: int) -> float:
    """Their expected square, relative to the squares of both operands' binades.

    lo² is 2^-2p/3 on average, and the third part's 2^-4p/21 (`left_square`).
    """
    squares = (fmt.unit_roundoff**2 / 3, fmt.unit_roundoff**4 / 21)
    return sum(squares[i - 1] * squares[parts - i - 1] for i in range(1, parts))


def expanded(
    a: Array,
    b: Array,
    fmt: Format,
    parts: int,
    group: int,
    intervals: Sequence[int] = (),
    ahead: int = 0,
) -> tuple[Array, Array]:
    """(…, M, P·K) and (…, P·K, N): the operands whose product sums all products of parts.

    ``group`` elements of K, filled up with zeros, run through all P products of parts before the
    next: a multiply-accumulate of the Tensor Core after the other. Within ``intervals`` of groups
    in turn (all in one without), products of lower parts come ``ahead`` groups before those of the
    next higher ones: what is small loses its last bits where it is added to a large sum. By as many
    as an interval has, the products of one pair of parts come before those of the next.
    """
    fill = -a.shape[-1] % group
    wide = [(0, 0)] * (a.ndim - 1) + [(0, fill)]
    a = np.pad(a, wide)
    b = np.pad(np.swapaxes(b, -1, -2), [(0, 0)] * (b.ndim - 1) + [(0, fill)])
    left, right = (split(x, fmt, parts) for x in (a, b))
    count = a.shape[-1] // group
    steps = []
    for inside in pieces(count, intervals):
        if ahead >= len(inside):
            pairs = [(i, n - i) for n in reversed(range(parts)) for i in reversed(range(n + 1))]
            steps += [(g, *pair) for pair in pairs for g in inside]
            continue
        for step in range(len(inside) + (parts - 1) * ahead):
            for order in reversed(range(parts)):
                g = step - (parts - 1 - order) * ahead
                if 0 <= g < len(inside):
                    steps += [(inside[g], i, order - i) for i in reversed(range(order + 1))]

    def gathered(x: list[Array], part: int) -> Array:
        pieces = [x[s[part]][..., s[0] * group : (s[0] + 1) * group] for s in steps]
        return np.concatenate(pieces, axis=-1) if pieces else x[0][..., :0]

    return gathered(left, 1), np.swapaxes(gathered(right, 2), -1, -2)
