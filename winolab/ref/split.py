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
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from winolab.ref.formats import Format

Array = NDArray[np.float64]
# log2 below which every scaled and transformed number stays: half of FP16's range, so that no
# rounding of a transform reaches its end.
CEILING = 15
LOWEST, HIGHEST = -126, 127  # of an FP32 factor
# Exponents that a kernel leaves above the largest element of a sample of its input.
HEADROOM = 2


@dataclass(frozen=True)
class Scale:
    """Powers of two by which both tensors are multiplied before they are transformed.

    rule "absmax": from the tensors' largest magnitudes, 2^a and 2^b below what they allow; "peaks":
    from their exponents, a and b, which are known; "given": by 2^a and 2^b. Text: "absmax",
    "absmax:2:0", "peaks:3:-7", "11:18".
    """

    rule: str
    a: int = 0
    b: int = 0

    @classmethod
    def parse(cls, text: str) -> Scale | None:
        """Read the text form; "none" is None. Raises ValueError."""
        if text in ("none", "absmax"):
            return None if text == "none" else cls("absmax")
        rule, fields = "given", text.split(":")
        if fields[0] in ("peaks", "absmax"):
            rule, *fields = fields
        try:
            a, b = map(int, fields)
        except ValueError:
            raise ValueError(
                f"scale {text!r}: expected 'absmax', 'none', two exponents such as '11:18', or "
                "'peaks:3:-7', the exponents of the tensors' largest magnitudes."
            ) from None
        return cls(rule, a, b)

    def __str__(self) -> str:
        if self == Scale("absmax"):
            return "absmax"
        return f"{'' if self.rule == 'given' else f'{self.rule}:'}{self.a}:{self.b}"

    def of_data(self, a: NDArray, b: NDArray) -> Scale:
        """With the exponents of these tensors' largest magnitudes where the rule asks for them."""
        if self.rule != "absmax":
            return self
        spared = zip((a, b), (self.a, self.b), strict=True)
        return Scale("peaks", *(exponent(peak(x)) + spare for x, spare in spared))

    def exponents(self, gains: tuple[Fraction, Fraction]) -> tuple[int, int]:
        """The exponents for transforms whose largest absolute row sums are ``gains``."""
        if self.rule == "absmax":
            raise ValueError("scale 'absmax' depends on the data: expected Scale.of_data's result.")
        if self.rule == "given":
            return self.a, self.b
        a, b = (
            min(HIGHEST, max(LOWEST, CEILING - 1 - e - ceil_log2(g)))
            for e, g in zip((self.a, self.b), gains, strict=True)
        )
        return a, b


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
    """Numbers of the format whose sum is nearly x, the largest first."""
    found = []
    for _ in range(parts):
        found.append(fmt.round(x))
        x = x - found[-1]
    return found


def products(parts: int) -> int:
    """Products of parts that are summed for one product."""
    return parts * (parts + 1) // 2


def left(fmt: Format, parts: int, precision: int) -> float:
    """Bound of |v − Σ parts| / |v| for a v of ``precision`` bits, where nothing underflows.

    With 2^e ≤ |v| the first rest is at most 2^(e−p); below that, its binade is lower by one more,
    so that n parts leave at most 2^(e − np − n + 1): nothing, if v has no bits there.
    """
    bits = parts * fmt.precision + parts - 1
    return 2.0**-bits if bits < precision else 0.0


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


def expanded(a: Array, b: Array, fmt: Format, parts: int, group: int) -> tuple[Array, Array]:
    """(…, M, P·K) and (…, P·K, N): the operands whose product sums all products of parts.

    ``group`` elements of K, filled up with zeros, run through all P products of parts before the
    next: a multiply-accumulate of the Tensor Core after the other.
    """
    fill = -a.shape[-1] % group
    wide = [(0, 0)] * (a.ndim - 1) + [(0, fill)]
    a = np.pad(a, wide)
    b = np.pad(np.swapaxes(b, -1, -2), [(0, 0)] * (b.ndim - 1) + [(0, fill)])
    orders = [(i, j) for o in reversed(range(parts)) for i in range(o + 1) for j in [o - i]]
    left, right = (split(x, fmt, parts) for x in (a, b))

    def interleaved(chosen: list[Array]) -> Array:
        rows = [x.reshape(*x.shape[:-1], -1, group) for x in chosen]
        return np.stack(rows, axis=-2).reshape(*chosen[0].shape[:-1], -1)

    x, y = interleaved([left[i] for i, _ in orders]), interleaved([right[j] for _, j in orders])
    return x, np.swapaxes(y, -1, -2)
