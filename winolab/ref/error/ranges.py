"""What the ranges of the formats do to a kind of tile: variance by underflow, chance of overflow.

States are taken as normal, as in winolab.ref.error.predict. Below the normal numbers of a format a
rounding errs by up to half of its smallest one, whatever the value: small values, such as those of
a filter's transform with large α, lose all of their digits. Above its largest number a value is
infinite; none is where the tensors' largest magnitudes and the transforms' row sums exclude it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from winolab.ref.algorithms.engine import gains
from winolab.ref.arithmetic.formats import FORMATS, Format
from winolab.ref.arithmetic.simulated import Arithmetic, Float
from winolab.ref.arithmetic.split import Power, exponent, left_square
from winolab.ref.error.forms import Axis, powers
from winolab.ref.error.moments import Moments, erf
from winolab.ref.error.partial_sums import (
    Products,
    at_nodes,
    beyond,
    last_places,
    places,
    sums_underflow,
    underflow,
)
from winolab.ref.error.roundings import Unit, part

Array = NDArray[np.float64]
WIDEST = FORMATS["fp32"].emax  # whose transforms do not overflow where nothing else does


def kron(rows: Sequence[Array]) -> Array:
    """The outer product over the dimensions."""
    return reduce(np.multiply.outer, rows)


class Operand:
    """A tensor's transformed elements, the states along each dimension: mean and variance.

    ``tables``: along each dimension ‖row‖² and (Σ row)² of the matrix, and Σ row.
    """

    def __init__(
        self,
        data: Moments,
        matrices: Sequence[Array],
        tables: Sequence[tuple[Array, Array]],
        bare: Sequence[Array],
        steps: Sequence[Array],
    ) -> None:
        self.data = data
        squares, sums = (kron([of[:, i] for of, _ in tables]) for i in (0, 1))
        mean = kron([s for _, s in tables])
        self.mean = data.mean * mean
        self.variance = data.variance * squares + data.mean**2 * np.maximum(0, sums - mean**2)
        self.gain = kron([np.abs(m).sum(axis=1) for m in matrices])
        self.counts = kron([np.count_nonzero(m, axis=1) for m in matrices])
        self.bare = kron([b.astype(float) for b in bare]) > 0
        # errors of one size made in each rounding, with what later dimensions make of them
        self.steps = np.zeros(())
        for m, made in zip(matrices, steps, strict=True):
            before = np.multiply.outer(self.steps, (m**2).sum(axis=1))
            self.steps = before + np.multiply.outer(np.ones(self.steps.shape), made)

    @property
    def square(self) -> Array:
        return self.variance + self.mean**2

    def lost(self, run: Float, scale: int, stored: bool) -> Array:
        """Variance of the errors that underflow makes, in the states times 2^``scale``."""
        factor = 2.0**scale
        mean, variance, fmt = self.mean * factor, self.variance * factor**2, run.transform
        eta = fmt.smallest_subnormal
        values = at_nodes(mean, variance)
        below = np.abs(values) < 2.0**fmt.emin
        made = np.minimum((self.steps * eta * eta / 12)[..., None], values**2) * below
        product, bits = part(run) if run.parts > 1 else run.product, fmt.precision
        rate = left_square(product, run.parts, bits)
        rounded = underflow(product, mean, variance, rate, bits if run.parts > 1 else 53)
        if run.parts == 1 and not scale and Unit.of(product, run.storage) == Unit():
            rounded = np.where(self.bare, 0.0, rounded)
        total = made.mean(axis=-1) + rounded
        if not stored:
            one = np.array([self.data.mean]), np.array([self.data.variance])
            here = underflow(run.storage, *one)[0] * factor**2
            total = total + here * self.variance / max(self.data.variance, 1e-300)
        return total

    def over(self, limit: float, scale: int) -> Array:
        """Chance that a state times 2^``scale`` exceeds the limit."""
        factor = 2.0**scale
        most = factor * self.gain * self.data.largest
        return beyond(limit, self.mean * factor, self.variance * factor**2, most)


@lru_cache(maxsize=256)
def _filters(data: Moments, *axes: Axis) -> Operand:
    tables = [(powers(x.g), x.g.sum(axis=1)) for x in axes]
    g, bare = [x.g for x in axes], [x.bare_g for x in axes]
    return Operand(data, g, tables, bare, [x.steps_g for x in axes])


@lru_cache(maxsize=256)
def _inputs(data: Moments, *axes: Axis) -> Operand:
    tables = [(x.of_bt, x.sums_bt) for x in axes]
    bt, bare = [x.bt for x in axes], [x.bare_bt for x in axes]
    return Operand(data, bt, tables, bare, [x.steps_bt for x in axes])


class Ranges:
    """Operands, filter and input, of one kind of tile in an arithmetic."""

    def __init__(
        self, axes: Sequence[Axis], run: Arithmetic, a: Moments, b: Moments, depth: float
    ) -> None:
        self.axes, self.run, self.depth = axes, run, depth
        self.filters, self.inputs = _filters(b, *axes), _inputs(a, *axes)

    @cached_property
    def exponents(self) -> tuple[int, int]:
        """Exponents of the powers of two that scale the input and the filter."""
        run = self.run
        if not isinstance(run, Float) or run.scale is None:
            return 0, 0
        found = []
        sides = zip(
            (run.scale.a, run.scale.b),
            (self.inputs.data, self.filters.data),
            gains([axis.programs for axis in self.axes]),
            strict=True,
        )
        for power, data, gain in sides:
            if power.rule == "absmax":
                power = Power("peaks", exponent(data.expected) + power.value)
            found.append(power.exponent(gain))
        return found[0], found[1]

    def underflow(self, terms: Products, stored: bool) -> Array:
        """Variance of the sums' errors by underflow, a state each, unscaled."""
        run = self.run
        if not isinstance(run, Float):
            return np.zeros(self.filters.mean.shape)
        of_x, of_w = self.exponents
        both = 2.0 ** -(of_x + of_w)
        ex = self.inputs.lost(run, of_x, stored) * 4.0**-of_x
        ew = self.filters.lost(run.of_filters, of_w, stored) * 4.0**-of_w
        total = self.depth * (ex * self.filters.square + ew * self.inputs.square + ex * ew)
        scaled = terms.scaled(1 / both)
        total = total + both**2 * sums_underflow(run, self.depth, scaled)
        if Unit.of(run.of_sums, run.accumulate) != Unit():
            sums = self.depth * scaled.mean, self.depth * scaled.variance
            total = total + both**2 * underflow(run.of_sums, *sums)
        return total

    def overflow(
        self,
        terms: Products,
        made: Sequence[tuple[Array, Array]],
        results: tuple[Array, Array],
    ) -> Array:
        """Chance that an output is not finite.

        ``made``: mean and variance of what AT makes along each dimension, behind the ones before
        it; ``results``: those of the outputs.
        """
        run = self.run
        if not isinstance(run, Float):
            return np.zeros(())
        of_x, of_w = self.exponents
        product, back = part(run) if run.parts > 1 else run.product, run.of_outputs.transform
        largest = self.inputs.data.largest * self.filters.data.largest
        scale = 2.0 ** (of_x + of_w)
        with np.errstate(all="ignore"):
            finite = self.depth * (
                np.log1p(-self.inputs.over(_least(product, run.transform), of_x))
                + np.log1p(-self.filters.over(_least(product, run.of_filters.transform), of_w))
            )
            most = scale * self.depth * self.inputs.gain * self.filters.gain * largest
            sums = scale * self.depth * terms.mean, scale**2 * self.depth * terms.variance
            finite = finite + np.log1p(-beyond(_least(run.accumulate, run.of_sums), *sums, most))
            finite = _through(finite, [axis.at for axis in self.axes])
            for d, (mean, variance) in enumerate(made):
                if back.emax < WIDEST:
                    chance = beyond(back.max, scale * mean, scale**2 * variance)
                    later = [axis.at for axis in self.axes[d + 1 :]]
                    finite = finite + _through(np.log1p(-chance), [self.axes[d].slopes, *later])
            last = beyond(back.max, *results)
            for data in (self.inputs.data, self.filters.data):
                one = np.array(data.mean), np.array(data.variance)
                taps = self.depth * math.prod(axis.tile.r for axis in self.axes)
                finite = finite + taps * np.log1p(-beyond(run.storage.max, *one, data.largest))
            return -np.expm1(finite + np.log1p(-last))


def _through(finite: Array, matrices: Sequence[Array]) -> Array:
    """log of the chance that all values are finite that an output needs: what its rows read."""
    for matrix in matrices:
        finite = np.tensordot(np.maximum(finite, -1e300), matrix.T != 0, axes=(0, 0))
    return finite


def _least(*formats: Format) -> float:
    return min(fmt.max for fmt in formats)


@lru_cache(maxsize=256)
def products_of(of_w: Operand, of_x: Operand, run: Arithmetic) -> Products:
    """The products that a state sums, of both operands' states, whatever the depth."""
    (u, su), (v, sv) = both = (of_w.mean, of_w.variance), (of_x.mean, of_x.variance)
    mean, variance = u * v, su * sv + su * v**2 + sv * u**2
    signs = [erf(m / np.sqrt(2 * np.maximum(s, 1e-300))) for m, s in both]
    nonzero = (1 - of_w.data.zeros**of_w.counts) * (1 - of_x.data.zeros**of_x.counts)
    bits = run.product.precision if isinstance(run, Float) else 0
    last = last_places(*both, bits)
    made = places(*both), 2.0 ** (2 - 2 * bits)
    return Products(mean, variance, signs[0] * signs[1], nonzero, last, *made)
