"""Exact convolution of eight-bit integers by residues: every number modulo some primes.

Winograd's transforms have denominators and enlarge their operands, so that INT8 transforms lose
digits. Modulo a prime that divides no denominator a fraction is an integer, and every residue has
eight bits. The convolution runs once a prime; the Chinese remainder theorem gives its sums where
the primes' product exceeds their range (Liu & Mattina 2020, 2007.12216). So the result is that of
direct convolution of the quantised data, bit for bit, whatever the algorithm: points have no error
to be chosen by, and the saving is divided by the number of primes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from winolab.ref.arithmetic.exact import Arithmetic, Carrier
from winolab.ref.quantized.scales import Quantized, Single, peaks

# Below 256, the largest first: symmetric residues have eight bits.
PRIMES = [p for p in range(255, 2, -2) if all(p % d for d in range(3, 16, 2) if d < p)]
GRID = Quantized("int8")


@dataclass(frozen=True)
class Modular(Arithmetic):
    """Integers modulo a prime; products are of symmetric residues, summed exactly."""

    prime: int

    @property
    def name(self) -> str:
        return f"mod:{self.prime}"

    def asarray(self, x: ArrayLike) -> Carrier:
        return np.asarray(x).astype(np.int64) % self.prime

    def constant(self, q: Fraction | int) -> Any:
        q = Fraction(q)
        return np.int64(q.numerator * pow(q.denominator, -1, self.prime) % self.prime)

    def to_float64(self, y: Carrier) -> NDArray[np.float64]:
        return np.asarray(y, np.float64)

    def add(self, a: Any, b: Any) -> Any:
        return (a + b) % self.prime

    def sub(self, a: Any, b: Any) -> Any:
        return (a - b) % self.prime

    def mul(self, a: Any, b: Any) -> Any:
        return (a * b) % self.prime

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return (a * b + c) % self.prime

    def symmetric(self, x: Carrier) -> NDArray[np.int8]:
        """The residues of least magnitude, which eight bits hold."""
        half = self.prime // 2
        return ((np.asarray(x) + half) % self.prime - half).astype(np.int8)

    def matmul(self, a: Carrier, b: Carrier) -> Carrier:
        wide = [self.symmetric(v).astype(np.float64) for v in (a, b)]
        return np.matmul(*wide).astype(np.int64) % self.prime  # below 2^53: K < 5·10^11


@dataclass(frozen=True)
class Residues(Single):
    """INT8 data, one scale a tensor (or, of filters, an output channel), convolved exactly.

    The operations are FP32's, of what is made of whole convolutions.
    """

    shared: str = "tensor"

    @property
    def name(self) -> str:
        return f"rns:{self.shared}"

    @property
    def quantized(self) -> Quantized:
        """The arithmetic in which direct convolution has the same result."""
        return Quantized("int8", self.shared)

    def matmul(self, a: Carrier, b: Carrier) -> Carrier:
        raise ValueError(
            f"{self.name} has residues of whole convolutions; expected one by direct, winograd, "
            "gamma or dwm"
        )

    def convolved(
        self,
        x: Carrier,
        w: Carrier,
        depth: int,
        denominators: Iterable[int],
        run: Callable[[Carrier, Carrier, Modular], Carrier],
    ) -> Carrier:
        """The convolution of x (…, IC) and w (OC, …), ``depth`` products an output, which ``run``
        computes in an arithmetic with constants of these denominators."""
        x, w = (np.asarray(self.asarray(v), np.float64) for v in (x, w))
        inside = tuple(range(1, w.ndim))
        of_x = GRID.scale(peaks(x, tuple(range(x.ndim))))
        of_w = GRID.scale(peaks(w, inside if self.shared == "channel" else (0, *inside)))
        with np.errstate(all="ignore"):
            x, w = GRID.rounded(x / of_x), GRID.rounded(w / of_w)
        total = self.sums(x, w, depth, denominators, run)
        both = (of_x.reshape(()) * of_w.reshape(-1)).astype(np.float32)
        return both * total.astype(np.float32)

    @staticmethod
    def sums(
        x: Carrier,
        w: Carrier,
        depth: int,
        denominators: Iterable[int],
        run: Callable[[Carrier, Carrier, Modular], Carrier],
    ) -> NDArray[np.int64]:
        """The exact sums of products of whole numbers, 127 at most. Raises ValueError for NaN."""
        if not (np.isfinite(x).all() and np.isfinite(w).all()):
            raise ValueError(
                "residues of NaN or infinity; expected finite numbers; use another precision, as "
                "'int8', for such data"
            )
        primes = moduli(2 * depth * 127**2 + 1, denominators)
        residues = [run(x.astype(np.int64), w.astype(np.int64), Modular(p)) for p in primes]
        return combined(residues, primes)


def moduli(range_: int, denominators: Iterable[int]) -> list[int]:
    """Primes of eight bits whose product is ``range_`` at least, and which divide no denominator.
    Raises ValueError where there are too few."""
    whole = math.prod({*denominators})
    found: list[int] = []
    for p in PRIMES:
        if math.prod(found) >= range_:
            return found
        if whole % p:
            found.append(p)
    raise ValueError(
        f"sums of {range_.bit_length()} bits, and primes below 256 that divide no denominator have "
        f"{math.prod(found).bit_length()} together; expected fewer products or other points"
    )


def combined(residues: Sequence[Carrier], primes: Sequence[int]) -> NDArray[np.int64]:
    """The numbers of least magnitude that have these residues, by mixed radices (Garner 1959)."""
    digits: list[NDArray[np.int64]] = []
    for residue, p in zip(residues, primes, strict=True):
        left, inverse = np.asarray(residue) % p, 1
        for digit, q in zip(digits, primes, strict=False):
            left = (left - inverse * digit) % p
            inverse = inverse * q % p
        digits.append(left * pow(inverse, -1, p) % p)
    value, weight = np.zeros(np.shape(residues[0]), np.int64), 1
    for digit, p in zip(digits, primes, strict=True):
        value, weight = value + weight * digit, weight * p
    return np.where(value > weight // 2, value - weight, value)


def parsed(text: str) -> Residues | None:
    """The arithmetic of "rns" or "rns:channel"; None of other names. Raises ValueError."""
    name, _, shared = text.partition(":")
    if name != "rns":
        return None
    if (shared or "tensor") not in ("tensor", "channel"):
        raise ValueError(f"precision {text!r}; expected rns, rns:tensor or rns:channel")
    return Residues(shared or "tensor")
