"""Simulated dot products: the order of summation and where it rounds.

All kernels work on float64 blocks that stay in the second-level cache, one numpy call for one
elementary operation of a whole block. A product of two numbers of at most 26 bits is exact in
float64; the sum with an accumulator is then rounded twice, to 53 bits and to the accumulator's p.
For p <= 25 two roundings of a *sum of two p-bit numbers* equal one (Figueroa 1995, When is double
rounding innocuous?), but the exact product is longer: the second rounding errs where the 53-bit
sum lies on a tie of the p-bit format and was inexact. Those few are recomputed with rounding to odd
(Boldo & Melquiond 2008, Emulation of a FMA and correctly rounded sums).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.arguments.values import whole
from winolab.arguments.words import plural
from winolab.ref.arithmetic.eft import odd_add
from winolab.ref.arithmetic.formats import EXPONENT_BITS, MODES, Format, nearest_name
from winolab.ref.arithmetic.loops import compiled

Array = NDArray[np.float64]
KINDS = ("sequential", "two_level", "pairwise", "kahan", "tensor_core", "unspecified")
# Elements of a block. 2**14 float64 values and their scratch (0.5 MiB) fit in 1 MiB of L2;
# measured with 64x256, FMA: 570e6/s; 16x64: 110e6/s (call overhead); 512x512: 210e6/s (L3).
BLOCK = 1 << 14
INNER = 512
TIE = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Accumulation:
    """An order of summation of products.

    sequential: index order, one accumulator.
    two_level: each block of `block` products summed from zero, then added to the outer accumulator.
    pairwise: products rounded, then neighbours added in a binary tree.
    kahan: compensated summation in index order.
    tensor_core: `block` exact products and the accumulator are aligned to the largest exponent
        among them, a product's being the sum of its factors', truncated to the accumulator's
        precision plus `extra_bits`, added exactly, and the result is rounded as `rounding` says,
        overflow to infinity. Exponents are the formats' fields: a subnormal's is that of the least
        normal number; 0 has none. With chunks of 16 (m16n8k16, wgmma) or 8 (m16n8k8), 2 extra bits
        and truncation it repeats an H200's bits (docs/notes/067; Fasi, Higham, Mikaitis & Pranesh
        2021, Numerical behavior of NVIDIA tensor cores, PeerJ CS 7:e330). With
        `intervals`, so many products are summed from zero, then added to an outer accumulator
        outside of the Tensor Core, rounded to nearest (Ootomo & Yokota 2022); of several, each
        in turn.
    unspecified: any order (FP64 only: NumPy's own matrix product).

    Text form: kind, then block, extra bits, rounding and intervals where the kind has them, joined
    by colons: "sequential", "two_level:32", "tensor_core:8:1:truncate",
    "tensor_core:16:2:truncate:48", "tensor_core:16:2:truncate:144+96".
    """

    kind: str
    block: int = 0
    extra_bits: int = 0
    rounding: str = "nearest"
    intervals: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("block", "extra_bits"):
            object.__setattr__(self, name, whole(getattr(self, name), f"{name} of accumulation"))
        intervals = tuple(whole(i, "an interval of accumulation") for i in self.intervals)
        object.__setattr__(self, "intervals", intervals)
        if self.kind not in KINDS:
            raise ValueError(
                f"unknown accumulation {self.kind!r}{nearest_name(self.kind, list(KINDS))}"
            )
        if self.rounding not in MODES:
            raise ValueError(
                f"unknown rounding {self.rounding!r}{nearest_name(self.rounding, list(MODES))}"
            )
        if (self.block > 0) != (self.kind in ("two_level", "tensor_core")):
            raise ValueError(
                f"{self.kind} accumulation with block {self.block}; two_level and tensor_core "
                "need a block of 1 or more, the others have none"
            )
        if not 0 <= self.extra_bits <= 16 or (self.kind == "tensor_core" and self.block > 1 << 12):
            raise ValueError(
                f"{plural(self.extra_bits, 'extra bit')}, chunk {self.block}; expected 0 to 16 "
                "bits and a tensor core chunk of at most 4096"
            )
        if self.intervals and (
            self.kind != "tensor_core" or any(i < 1 or i % self.block for i in self.intervals)
        ):
            raise ValueError(
                f"{self.kind} accumulation with intervals {self.intervals}; expected a tensor_core "
                "and multiples of its block"
            )

    @classmethod
    def parse(cls, text: str) -> Accumulation:
        """Read the text form. Raises ValueError."""
        kind, *rest = text.split(":")
        names = {"two_level": (1,), "tensor_core": (3, 4)}
        if kind in KINDS and len(rest) not in names.get(kind, (0,)):
            raise ValueError(
                f"accumulation {text!r}; expected 'sequential', 'pairwise', 'kahan', "
                "'two_level:BLOCK' or 'tensor_core:CHUNK:EXTRA_BITS:nearest|truncate[:INTERVALS]', "
                "several intervals joined by '+'"
            )
        try:
            block, extra_bits = (int(v) for v in (*rest[:2], "0", "0")[:2])
            intervals = tuple(int(v) for v in rest[3].split("+")) if len(rest) == 4 else ()
        except ValueError:
            raise ValueError(
                f"accumulation {text!r}; expected block, extra bits and intervals as integers"
            ) from None
        return cls(kind, block, extra_bits, *rest[2:3], intervals=intervals)

    def __str__(self) -> str:
        if self.kind == "two_level":
            return f"two_level:{self.block}"
        if self.kind == "tensor_core":
            outside = ":" * bool(self.intervals) + "+".join(map(str, self.intervals))
            return f"tensor_core:{self.block}:{self.extra_bits}:{self.rounding}{outside}"
        return self.kind


def pieces(count: int, lengths: Sequence[int]) -> Iterator[range]:
    """0 … count in pieces of these lengths in turn, the last shorter; in one of none, or of 0."""
    first = 0
    for length in cycle(lengths or (0,)):
        if first >= count:
            return
        yield range(first, min(first + (length or count), count))
        first += length or count


class Rounder:
    """Rounds a float64 block into another, in the given format, with scratch kept."""

    def __init__(self, fmt: Format, shape: tuple[int, ...]) -> None:
        self.fmt = fmt
        self.single = np.empty(shape, np.float32) if fmt.name == "fp32" else None

    def __call__(self, source: Array, out: Array) -> None:
        if self.single is None:
            out[...] = self.fmt.round(source)
        else:
            np.copyto(self.single, source, casting="same_kind")
            np.copyto(out, self.single)


class MultiplyAdd:
    """acc <- x*y + acc on blocks; x and y broadcast to acc's shape.

    fused: one rounding; otherwise the product is rounded first. `smallest` is a power of two that
    divides every exact product (0: unknown): sums below 2**emin are exact in FP64 where it is
    2**(emin - 53) or more.
    """

    def __init__(self, fmt: Format, shape: tuple[int, ...], fused: bool, smallest: float) -> None:
        self.fused = fused
        self.sum = np.empty(shape)
        self.bits = self.sum.view(np.int64)
        self.low = np.empty(shape, np.int64)
        self.shift = 11 + fmt.precision  # leaves the bits that rounding drops
        self.round = Rounder(fmt, shape)
        self.normal = 0.0 if smallest >= 2.0 ** (fmt.emin - 53) else 2.0**fmt.emin

    def __call__(self, x: Array, y: Array, acc: Array) -> None:
        np.multiply(x, y, out=self.sum)
        if self.fused:
            np.add(self.sum, acc, out=self.sum)
            self._repair(x, y, acc)
        else:
            self.round(self.sum, self.sum)
            np.add(self.sum, acc, out=self.sum)
        self.round(self.sum, acc)

    def _repair(self, x: Array, y: Array, acc: Array) -> None:
        np.left_shift(self.bits, self.shift, out=self.low)
        doubtful = self.low == TIE if self.low.min(initial=0) == TIE else None
        if self.normal:
            tiny = np.abs(self.sum) < self.normal
            doubtful = tiny if doubtful is None else doubtful | tiny
        if doubtful is not None and doubtful.any():
            p, q = (np.broadcast_to(v, acc.shape)[doubtful] for v in (x, y))
            self.sum[doubtful] = odd_add(p * q, acc[doubtful])


def _sequential(a: Array, b: Array, acc: Array, madd: MultiplyAdd, block: int) -> None:
    for x, y in zip(a, b, strict=True):
        madd(x, y, acc)


def _two_level(a: Array, b: Array, acc: Array, madd: MultiplyAdd, block: int) -> None:
    inner = np.empty_like(acc)
    for start in range(0, len(a), block):
        inner.fill(0)
        _sequential(a[start : start + block], b[start : start + block], inner, madd, block)
        np.add(acc, inner, out=inner)
        madd.round(inner, acc)


def _pairwise(a: Array, b: Array, acc: Array, madd: MultiplyAdd, block: int) -> None:
    stack: list[tuple[int, Array]] = []  # sums of 2**level products, as in a binary counter
    for x, y in zip(a, b, strict=True):
        level, total = 0, np.multiply(x, y, out=np.empty_like(acc))
        madd.round(total, total)
        while stack and stack[-1][0] == level:
            madd.round(np.add(stack.pop()[1], total, out=total), total)
            level += 1
        stack.append((level, total))
    while stack:
        other = stack.pop()[1]
        madd.round(np.add(other, acc, out=acc), acc)


def _kahan(a: Array, b: Array, acc: Array, madd: MultiplyAdd, block: int) -> None:
    term, total, lost = (np.zeros_like(acc) for _ in range(3))
    for x, y in zip(a, b, strict=True):
        np.negative(lost, out=term)
        madd(x, y, term)  # x*y - lost
        madd.round(np.add(acc, term, out=total), total)
        madd.round(np.subtract(total, acc, out=lost), lost)
        madd.round(np.subtract(lost, term, out=lost), lost)
        np.copyto(lost, 0.0, where=~np.isfinite(lost))  # an infinite sum has lost nothing
        acc[...] = total


ORDERS: dict[str, Callable[[Array, Array, Array, MultiplyAdd, int], None]] = {
    "sequential": _sequential,
    "two_level": _two_level,
    "pairwise": _pairwise,
    "kahan": _kahan,
}


def _tensor_core(
    a: Array, b: Array, acc: Array, order: Accumulation, fmt: Format, lowest: float
) -> None:
    inner = np.empty_like(acc)
    for piece in pieces(len(a), order.intervals):
        part = slice(piece.start, piece.stop)
        inner.fill(0)
        _chunks(a[part], b[part], inner, order, fmt, lowest)
        acc[...] = fmt.round(acc + inner)


def _binade(x: Array, lowest: float = 0.0) -> Array:
    binade = (x.view(np.int64) & EXPONENT_BITS).view(np.float64)
    return np.where(x == 0, 0.0, np.maximum(binade, lowest)) if lowest else binade


def _chunks(
    a: Array, b: Array, acc: Array, order: Accumulation, fmt: Format, lowest: float
) -> None:
    chunk = order.block
    products = np.empty((min(chunk, len(a)), *acc.shape))
    sizes = np.empty_like(products)
    for start in range(0, len(a), chunk):
        x, y = a[start : start + chunk], b[start : start + chunk]
        p, size = products[: len(x)], sizes[: len(x)]
        np.multiply(x, y, out=p)
        np.multiply(_binade(x, lowest), _binade(y, lowest), out=size)
        largest = np.maximum(size.max(axis=0), np.abs(acc))
        least = 2.0**fmt.emin
        spacing = np.maximum(_binade(largest), np.where(acc == 0, lowest * lowest or least, least))
        spacing *= 2.0 ** (1 - fmt.precision - order.extra_bits)
        p /= spacing
        np.trunc(p, out=p)
        total = p.sum(axis=0)  # integers below 2**53: exact in any order
        total += np.trunc(acc / spacing)
        total *= spacing
        special = ~np.isfinite(largest)
        if special.any():
            total[special] = ((x * y).sum(axis=0) + acc)[special]
        acc[...] = fmt.round(total, order.rounding)
        over = np.abs(total) >= 2.0 ** (fmt.emax + 1)  # infinite whatever the rounding
        acc[over] = np.copysign(np.inf, total[over])


def fma(a: Any, b: Any, c: Any, fmt: Format, dtype: np.dtype[Any]) -> NDArray[Any]:
    """a * b + c elementwise with one rounding to fmt, as an array of dtype.

    The arguments broadcast; a and b have at most 26 bits.
    """
    shape = np.broadcast_shapes(*(np.shape(v) for v in (a, b, c)))
    loops = compiled(math.prod(shape)) if fmt.name == "fp32" and dtype == np.float32 else None
    if loops and loops.FUSES:
        with np.errstate(all="ignore"):
            single = (np.asarray(v).astype(np.float32, copy=False) for v in (a, b, c))
            return np.asarray(loops.fma32(*single), dtype)
    out = np.empty(shape, dtype)
    flat = out.reshape(-1)
    parts = [
        np.reshape(v, 1) if np.size(v) == 1 else np.broadcast_to(v, shape).reshape(-1)
        for v in (a, b, c)
    ]
    madd = MultiplyAdd(fmt, (min(flat.size, BLOCK),), True, 0.0)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, BLOCK):
            end = min(start + BLOCK, flat.size)
            if end - start < madd.sum.size:
                madd = MultiplyAdd(fmt, (end - start,), True, 0.0)
            x, y, z = (v if v.size == 1 else v[start:end] for v in parts)
            acc = np.empty(end - start)
            acc[...] = z
            madd(x.astype(np.float64), y.astype(np.float64), acc)
            flat[start:end] = acc
    return out


def _smallest_spacing(a: Array, b: Array, product: Format) -> float:
    """A power of two that divides every product of an element of a and one of b."""

    def spacing(x: Array) -> float:
        low = np.min(np.abs(x), where=(x != 0) & np.isfinite(x), initial=np.inf)
        if not np.isfinite(low):
            return 1.0
        return 2.0 ** (max(int(np.frexp(low)[1]) - 1, product.emin) - product.precision + 1)

    return spacing(a) * spacing(b)


def matmul(
    a: Array, b: Array, order: Accumulation, product: Format, accumulate: Format, fused: bool
) -> Array:
    """a (..., M, K) @ b (..., K, N), summed over K in the given order and format.

    a and b hold values of the product format, of at most 26 bits so that products are exact in
    float64. The result holds values of the accumulate format (at most 25 bits), in
    float32 where Numba's loops sum in FP32.
    """
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    if columns < rows:  # the longer of the two innermost: products commute
        swapped = matmul(np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2), order, product,
                         accumulate, fused)  # fmt: skip
        return np.swapaxes(swapped, -1, -2)
    out = np.zeros((*batch, rows, columns))
    if out.size == 0 or depth == 0:
        return out
    a = np.broadcast_to(a, (*batch, rows, depth)).reshape(-1, rows, depth)
    b = np.broadcast_to(b, (*batch, depth, columns)).reshape(-1, depth, columns)
    if product.precision <= 24 and (loops := compiled(out.size * depth)):
        if order.kind == "tensor_core":
            ends = np.array([piece.stop for piece in pieces(depth, order.intervals)])
            made = loops.tensor_core(a, b, ends, order, accumulate, 2.0**product.emin)
        else:
            made = loops.matmul(a, b, order.kind, order.block, accumulate, fused)
        return made.reshape(out.shape)
    flat = out.reshape(-1, rows, columns)
    smallest = _smallest_spacing(a, b, product)
    size = BLOCK // 4 if order.kind == "tensor_core" else BLOCK
    n = min(columns, INNER)
    m = min(rows, max(1, size // n))
    g = min(len(flat), max(1, size // (m * n)))
    with np.errstate(all="ignore"):
        for i, j, k in np.ndindex(-(-len(flat) // g), -(-rows // m), -(-columns // n)):
            part = (slice(i * g, i * g + g), slice(j * m, j * m + m), slice(k * n, k * n + n))
            x = a[part[0], part[1]].transpose(2, 0, 1).astype(np.float64, order="C")
            y = b[part[0], :, part[2]].transpose(1, 0, 2).astype(np.float64, order="C")
            x, y = x[..., None], y[:, :, None, :]  # (K, g, m, 1), (K, g, 1, n)
            acc = np.zeros(flat[part].shape)
            if order.kind == "tensor_core":
                _tensor_core(x, y, acc, order, accumulate, 2.0**product.emin)
            else:
                madd = MultiplyAdd(accumulate, acc.shape, fused, smallest)
                ORDERS[order.kind](x, y, acc, madd, order.block)
            flat[part] = acc
    return out


def multiply_accumulate(
    a: Array, b: Array, c: Array, order: Accumulation, fmt: Format, lowest: float = 0.0
) -> Array:
    """a (..., M, K) @ b (..., K, N) + c as a chain of a Tensor Core's steps, which begins at c.

    ``lowest`` is the least exponent of the operands' normal numbers as a power of two, at which
    subnormal ones are aligned; with 0 all are as if they were normal, and so is an accumulator of
    0: an H200 differs from that where operands or all of a sum are subnormal (docs/notes/045).
    """
    total = np.array(c, np.float64)
    x, y = np.moveaxis(a, -1, 0)[..., None], np.moveaxis(b, -2, 0)[..., None, :]
    with np.errstate(all="ignore"):
        _chunks(x.astype(np.float64), y.astype(np.float64), total, order, fmt, lowest)
    return total
