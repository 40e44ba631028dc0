"""Expected rounding errors of simulated sums of products, for every order of summation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from winolab.ref.arithmetic.formats import Format
from winolab.ref.arithmetic.simulated import Float
from winolab.ref.arithmetic.split import products
from winolab.ref.error.moments import erf, erfc, quantiles

Array = NDArray[np.float64]
# Nodes, equally probable points of the normal distribution, over which exponents are averaged, and
# lengths of partial sums at which they are: doubling either moves no prediction by 1 %.
NODES, LENGTHS = 32, 96
GOLDEN = (5**0.5 - 1) / 2
PAIRS = 1 << 12  # of operands whose last places are looked at: small products are rare, and count
EVEN = (np.arange(PAIRS) + 0.5) / PAIRS


@cache
def nodes() -> Array:
    """The nodes of the normal distribution."""
    return quantiles((np.arange(NODES) + 0.5) / NODES)


@cache
def paired() -> tuple[tuple[Array, Array], ...]:
    """Both operands of PAIRS products, uniform around 0, or normal."""
    return tuple((at - 0.5, quantiles(at)) for at in (EVEN, EVEN * PAIRS * GOLDEN % 1))


@dataclass(frozen=True)
class Products:
    """The products that a state sums, as arrays over the states: mean and variance of one, mean of
    its sign, chance that it is not 0, its last places at the nodes (..., nodes); of many of them in
    order (..., PAIRS) the exponents, of which 0 stands for ``place``.
    """

    mean: Array
    variance: Array
    sign: Array
    nonzero: Array
    last: Array
    places: NDArray[np.int16]
    place: float

    def scaled(self, factor: float) -> Products:
        """The products times a power of two."""
        changed = (self.mean * factor, self.variance * factor**2)
        return replace(
            self,
            mean=changed[0],
            variance=changed[1],
            last=self.last * factor,
            place=self.place * factor,
        )

    def finest(self, count: float) -> Array:
        """The finest last places of ``count`` products; (..., nodes), symmetric in them."""
        half = NODES // 2
        least = -np.expm1(np.log1p(-(np.arange(half) + 0.5) / half) / count)
        at = np.minimum((least * PAIRS).astype(int), PAIRS - 1)[np.arange(half) * 5 % half]
        return np.ldexp(self.place, self.places[..., np.concatenate([at, at[::-1]])])


def _binades(
    length: Array | float, mean: Array, variance: Array, least: Array | float = 0.0
) -> Array:
    """2^⌊log2 |v|⌋ at the nodes of v ~ N(length·mean, length·variance), signed; (..., nodes)."""
    deviation = np.sqrt(length * variance)
    return _binades_of((length * mean)[..., None] + deviation[..., None] * nodes(), least)


def _binades_of(v: Array, least: Array | float = 0.0) -> Array:
    """2^⌊log2 |v|⌋, of ``least`` where v is smaller, signed; (..., nodes)."""
    size = np.maximum(np.abs(v), np.asarray(least)[..., None])
    exponent = np.where(size > 0, np.frexp(size)[1] - 1, -2000)
    return np.copysign(np.ldexp(1.0, exponent), v)


def rounding(u: float, length: Array | float, mean: Array, variance: Array) -> Array:
    """Variance of rounding v ~ N(length·mean, length·variance): (2u·2^e)²/12 at exponent e."""
    return u * u / 3 * (_binades(length, mean, variance) ** 2).mean(axis=-1)


def at_nodes(mean: Array, variance: Array) -> Array:
    """N(mean, variance) at the nodes; (..., nodes)."""
    return mean[..., None] + np.sqrt(variance)[..., None] * nodes()


def underflow(
    fmt: Format, mean: Array, variance: Array, lost: float | None = None, bits: int = 53
) -> Array:
    """What rounding N(mean, variance) to fmt adds to its error's variance below fmt's normal
    numbers.

    A rounding errs there by η²/12, or by the whole number; elsewhere by ``lost`` times its
    binade's square, u²/3 where none is given, and by nothing where fmt holds all of its ``bits``.
    """
    v = at_nodes(mean, variance)
    binade = np.ldexp(1.0, np.frexp(v)[1] - 1)
    relative = (fmt.unit_roundoff**2 / 3 if lost is None else lost) * binade**2
    eta = fmt.smallest_subnormal
    absolute = np.minimum(eta * eta / 12, v * v) * (binade * 2.0 ** (1 - bits) < eta)
    return np.maximum(0.0, absolute - relative).mean(axis=-1)


def sums_underflow(run: Float, depth: float, terms: Products) -> Array:
    """What ``depth`` products lose below the accumulator's normal numbers, as a variance.

    Sums of its numbers are exact there: only products lose what lies below η, or below its part
    that an alignment keeps.
    """
    fmt, order = run.accumulate, run.accumulation
    eta = fmt.smallest_subnormal * 2.0**-order.extra_bits
    square = terms.variance + terms.mean**2
    each = np.minimum(eta * eta / (3 if order.kind == "tensor_core" else 12), square)
    lengths, _ = _lengths(depth)
    below = [
        (np.abs(at_nodes(k * terms.mean, k * terms.variance)) < 2.0**fmt.emin).mean(axis=-1)
        for k in lengths[:: max(1, len(lengths) // 8)]
    ]
    return depth * terms.nonzero * each * np.mean(below, axis=0)


def beyond(limit: float, mean: Array, variance: Array, most: Array | float = math.inf) -> Array:
    """Chance that |N(mean, variance)| exceeds the limit; none where ``most`` does not."""
    deviation = np.sqrt(2 * np.maximum(variance, 1e-300))
    mean = np.abs(mean)
    chance = (erfc((limit - mean) / deviation) + erfc((limit + mean) / deviation)) / 2
    return np.where(np.asarray(most) <= limit, 0.0, chance)


def mean_size(mean: Array, deviation: Array) -> Array:
    """E|e| of a normal e."""
    t = np.clip(mean / np.maximum(math.sqrt(2) * deviation, 1e-300), -40, 40)  # erf is ±1 there
    return deviation * math.sqrt(2 / math.pi) * np.exp(-(t**2)) + mean * erf(t)


def last_places(left: tuple[Array, Array], right: tuple[Array, Array], precision: int) -> Array:
    """Last places of products of operands N(mean, variance) with that precision; (..., nodes).

    The operands' nodes are paired so that they look independent of each other and of the others.
    """
    shuffled = np.arange(NODES) * 13 % NODES, np.arange(NODES) * 7 % NODES
    u, v = (_binades(1.0, *data)[..., at] for data, at in zip((left, right), shuffled, strict=True))
    return np.abs(u * v) * 2.0 ** (2 - 2 * precision)


def places(left: tuple[Array, Array], right: tuple[Array, Array]) -> NDArray[np.int16]:
    """Exponents of products of PAIRS pairs of operands' leading digits, in order; (..., PAIRS).

    Operands of one sign are taken as uniform: the tail of a normal distribution would reach 0.
    """
    data = np.stack(np.broadcast_arrays(*left, *right), axis=-1)
    kinds, which = np.unique(data.reshape(-1, 4), axis=0, return_inverse=True)
    found = np.zeros((len(kinds), PAIRS), np.int16)
    for side, (even, normal) in enumerate(paired()):
        mean, deviation = kinds[:, 2 * side, None], np.sqrt(kinds[:, 2 * side + 1, None])
        uniform = np.abs(mean) > math.sqrt(3) * deviation
        v = mean + deviation * np.where(uniform, math.sqrt(12) * even, normal)
        found += (np.frexp(v)[1] - 1).astype(np.int16)
    return np.sort(found, axis=-1)[which].reshape(*data.shape[:-1], PAIRS)


def _lengths(count: float) -> tuple[Array, float]:
    """Some of the lengths 1 … count, and how many each stands for."""
    some = min(LENGTHS, max(1, round(count)))
    return (np.arange(some) + 0.5) * count / some + 0.5, count / some


def _once(run: Float, length: Array | float, terms: Products) -> Array:
    return rounding(run.accumulate.unit_roundoff, length, terms.mean, terms.variance)


def _sequence(
    run: Float, count: float, terms: Products, step: float = 1.0, more: Array | float = 0.0
) -> Array:
    """Error of adding ``count`` sums of ``step`` products one after the other, each of which has as
    many products ``more`` as one that is not 0 counts for beside the mean."""
    lengths, each = _lengths(count)
    lengths = (step * lengths).reshape(-1, *(1,) * terms.mean.ndim) + more
    return _once(run, lengths, terms).sum(axis=0) * each


def sum_errors(run: Float, depth: float, terms: Products) -> tuple[Array, Array, Array]:
    """(variance, mean, shrinkage) of the error of a sum of ``depth`` products, elementwise.

    Shrinkage, beside the variance and relative to the sum's: truncation makes every sum smaller in
    proportion, so that the states' errors add up to a smaller output and not to noise.
    NumPy's unspecified order is taken for sequential, which it is in blocks at most.
    """
    order = run.accumulation
    zero = np.zeros_like(terms.mean)
    if order.kind == "tensor_core":
        if not order.intervals:
            return _tensor_core(run, depth, terms)
        blocks = [min(i / products(run.parts), depth) for i in order.intervals]
        blocks = blocks if depth > blocks[0] else blocks[:1]
        each = {block: _tensor_core(run, block, terms) for block in blocks}
        inside = [each[block] for block in blocks]
        noise, bias, _ = (sum(of, zero) * depth / sum(blocks) for of in zip(*inside, strict=True))
        shares = [block / sum(blocks) for block in blocks]
        shrinkage = sum((s * one[2] for s, one in zip(shares, inside, strict=True)), zero)
        mean = sum(blocks) / len(blocks)
        if depth > mean:
            noise = noise + _sequence(run, depth / mean, terms, mean) - _once(run, mean, terms)
        return noise, bias, shrinkage
    part = terms.nonzero  # adding 0 rounds nothing; a sum of several is hardly ever 0
    more = 1 / np.where(part > 0, part, 1) - 1  # a product that is not 0 is that of 1/part
    rounded = depth * part * _once(run, 1 + more, terms)
    total = zero if run.fused else rounded
    if order.kind == "two_level":
        block = min(order.block, depth)
        blocks = depth / block
        total = total + blocks * part * _sequence(run, block, terms, more=more)
        if blocks > 1:
            total = total + _sequence(run, blocks, terms, block) - _once(run, block, terms)
    elif order.kind == "pairwise":
        levels = np.arange(1, int(np.log2(depth)) + 1)
        total = rounded
        total = total + sum((depth / 2.0**i * _once(run, 2.0**i, terms) for i in levels), zero)
        if np.log2(depth) % 1:
            total = total + _once(run, depth, terms)
    elif order.kind == "kahan":
        total = total + rounded + _once(run, depth, terms)
    else:
        total = total + part * _sequence(run, depth, terms, more=more)
    return total, zero, zero


def _before(j: float, chunk: float, mean: Array, variance: Array) -> Array:
    """Binades of the sum of j − 1 chunks where that of j is at the nodes: of random steps it is
    normal around (j − 1)/j of that, with as much of a chunk's variance. At nodes of its own."""
    share, other = (j - 1) / j, nodes()[np.arange(NODES) * 13 % NODES]
    after = at_nodes(j * chunk * mean, j * chunk * variance)
    deviation = np.sqrt(share * chunk * variance)
    return _binades_of(share * after + deviation[..., None] * other)


def _tensor_core(run: Float, depth: float, terms: Products) -> tuple[Array, Array, Array]:
    """`sum_errors` of truncated alignment and the final rounding of each chunk.

    What truncating a sum of last place l to a spacing q drops is uniform over 0, l, …, q − l: mean
    (q − l)/2, mean square (q − l)(2q − l)/6. Of a product a·b of integers with a = 2^i·odd it is
    uniform over the multiples of 2^i; averaged over i with chance 2^-(i+1), and q = 2^m l: mean
    (2^m − 1)/2 − m/4, mean square (2·4^m − 3/2 (m + 1) 2^m − 1/2)/6, over l and l².

    Products with a low part are small and of either sign: aligned to a sum of products of high
    parts, each loses up to q of its magnitude, and every chunk of them rounds the sum once more.
    """
    order, fmt = run.accumulation, run.accumulate
    mean, variance, last = terms.mean, terms.variance, terms.last
    chunk = min(order.block, depth)
    lengths, each = _lengths(depth / chunk)
    fine = 2.0 ** (1 - fmt.precision - order.extra_bits)
    corrections = products(run.parts) - 1  # chunks of them
    nonzero = chunk * float(terms.nonzero.mean())
    finest = terms.finest(max(1.0, nonzero))
    total, bias = np.zeros_like(mean), np.zeros_like(mean)
    slope = np.zeros_like(mean)
    for j in lengths:
        before = _binades(
            max(0.0, j - 1) * chunk, mean, variance, np.abs(mean) + 1.5 * np.sqrt(variance)
        )
        after = _binades(j * chunk, mean, variance)
        q = np.abs(before) * fine
        finer = np.divide(q, last, out=np.ones_like(q), where=last > 0)  # 0s lose nothing
        size = np.maximum(finer, 1)
        m = np.log2(size)
        dropped = last * ((size - 1) / 2 - m / 4)
        square = last**2 * (2 * size**2 - 1.5 * (m + 1) * size - 0.5) / 6
        loss = -terms.sign * dropped.mean(axis=-1)
        bias += each * chunk * terms.nonzero * loss
        total += each * chunk * terms.nonzero * (square.mean(axis=-1) - loss**2)
        if j > 1 + run.ahead and corrections:
            high = _binades(
                (j - 1 - run.ahead) * chunk, mean, variance, np.abs(mean) + 1.5 * np.sqrt(variance)
            )
            spacing = np.abs(high) * 2.0 ** (1 - fmt.precision)
            kept = np.abs(high) * fine
            lost = (spacing - kept) / 2 * (order.rounding == "truncate")
            square = (spacing - kept) * (2 * spacing - kept) / 6
            total += each * corrections * chunk * terms.nonzero * (kept**2 / 3).mean(axis=-1)
            total += each * corrections * (square - lost**2).mean(axis=-1)
            bias -= each * corrections * (np.sign(high) * lost).mean(axis=-1)
            towards = (lost / np.maximum(1.44 * np.abs(high), 1e-300)).mean(axis=-1)
            slope += corrections * towards / len(lengths)
        spacing = np.abs(after) * 2.0 ** (1 - fmt.precision)
        q = np.minimum(np.maximum(q, finest), spacing)
        if j > 1:  # a sum that was smaller holds finer places
            held = np.abs(_before(j, chunk, mean, variance)) * 2.0 ** (1 - fmt.precision)
            q = np.minimum(q, np.maximum(held, terms.finest(max(1.0, (j - 1) * nonzero))))
        if order.rounding == "nearest":
            rounded = np.where(spacing > q, (spacing**2 + 2 * q**2) / 12, 0)
            total += each * rounded.mean(axis=-1)
            continue
        lost = (spacing - q) / 2
        bias -= each * (np.sign(after) * lost).mean(axis=-1)
        square = (spacing - q) * (2 * spacing - q) / 6
        total += each * (square - lost**2).mean(axis=-1)
        # towards zero: in proportion to the sum, so that the losses of a random sum add up too
        slope += (lost / np.maximum(1.44 * np.abs(after), 1e-300)).mean(axis=-1) / len(lengths)
    chunks = depth / chunk
    paths = chunks * (chunks + 1) * (2 * chunks + 1) / 6  # Var Σ_j S_j / Var of one chunk
    return total, bias, slope**2 * paths / chunks
