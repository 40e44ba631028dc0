"""Rounding errors predicted: relative RMS, mean relative error and bias from the data's moments.

First-order model. Every rounding of a value v adds an independent error of variance
CONSTANT u² E[v²]: to nearest, the relative error has variance u²/(3 s²) at significand s, which is
(1/3)(3/(8 ln 2)) u² = 0.180 u² over a log-uniform significand. Every intermediate v of a program is
a known linear form l of independent, identically distributed inputs, so that
E[v²] = variance ‖l‖² + mean² (Σ l)²; an error propagates linearly through the rest of the
algorithm, whose coefficients are known as well. Forms of nested transforms are Kronecker products,
whose ‖l‖² and (Σ l)² are products over the dimensions.

Partial sums of k products of mean m and variance s are taken as normal N(k m, k s); the exponent of
the accumulator, on which a rounding's size depends, is averaged over that distribution
(winolab.ref.error.partial_sums). Truncation, of tensor cores, has a mean besides, which adds up.
Constants that the transform format cannot hold make a fixed error of the bilinear form, computed
exactly from the rounded constants.

Means over a region's tiles: of what lies inside of the map, and of the outputs that it has
(winolab.ref.error.edges).

The formats' ranges: what is below the normal numbers of a format loses digits, what is beyond its
largest number is infinite (winolab.ref.error.ranges).

Left out: roundings that happen to be exact (differences of numbers of one binade, few-bit data),
correlation of errors that share inputs, zeros that fill up the last piece of a filter.
tests/ref/error/test_predict.py holds predictions against simulation, and states how far off they
are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Problem, parse_algorithm
from winolab.ref.algorithms import convolution
from winolab.ref.algorithms.engine import Region
from winolab.ref.algorithms.winograd import ProgramsOf, programs_of
from winolab.ref.arithmetic.simulated import Arithmetic, Exact, Float, arithmetic
from winolab.ref.arithmetic.split import dropped_square, left_square
from winolab.ref.error.componentwise import errors
from winolab.ref.error.edges import kinds
from winolab.ref.error.forms import Axis, axis_of
from winolab.ref.error.moments import CONSTANT, Moments, alive
from winolab.ref.error.partial_sums import (
    Products,
    mean_size,
    rounding,
    sum_errors,
)
from winolab.ref.error.ranges import Ranges, products_of
from winolab.ref.error.roundings import Unit, Units, depth_of, tiling

__all__ = ["CONSTANT", "Moments", "Prediction", "predict"]

Array = NDArray[np.float64]
# A mean relative error needs outputs away from 0: their |mean| in standard deviations, at least.
AWAY = 4.0


@dataclass(frozen=True)
class Prediction:
    """Expected errors of the outputs.

    relative_rms: √(E e² / E y²). mare: E|e| / |E y|, NaN where outputs may vanish (|mean| below
    AWAY standard deviations). relative_bias: E e / |E y|, 0 for zero-mean outputs. shares: the part
    of E e² that each source has; they sum to 1. overflow: the part of the outputs that are not
    finite; where one of them is expected not to be, the errors are infinite. uneven: E e² of the
    place in a tile where it is largest over its mean. errors: of arrays, the expected absolute
    error of each output, √(E e²).
    """

    relative_rms: float
    mare: float
    relative_bias: float
    shares: dict[str, float]
    overflow: float = 0.0
    uneven: float = 1.0
    errors: Array | None = field(default=None, compare=False, repr=False)

    @property
    def range(self) -> str:
        """What the formats' ranges do: "overflow", "underflow" (most of the error), or ""."""
        if self.overflow and not math.isfinite(self.relative_rms):
            return "overflow"
        return "underflow" if self.shares.get("underflow", 0.0) > 0.5 else ""


@np.errstate(all="ignore")
def predict(
    a: Moments | NDArray[Any],
    b: Moments | NDArray[Any],
    problem: Problem,
    algorithm: str | Algorithm,
    run: str | Arithmetic,
    *,
    direction: str = "forward",
    programs: ProgramsOf | None = None,
    stored: bool = True,
) -> Prediction:
    """Errors of winograd.forward or of a gradient in the arithmetic ``run``, for random data.

    a and b are that function's first two arguments, or their moments, ``programs`` its last. Of
    arrays the prediction has the error of every output, shaped as the outputs, and the relative RMS
    is that of these errors: errors of transformed tiles are relative to the largest numbers of the
    tile, those of direct products alone to an output's own products. ``stored``: the data are
    numbers of the storage format; otherwise rounding them counts.

    Moments of NaN or infinite data predict NaN. Raises ValueError for an unknown direction or an
    algorithm that cannot serve the problem, TypeError for an array beside moments.

    Example: ``predict(x, w, problem, gamma(8, 6, 3), arithmetic("fp32")).errors``.
    """
    how = (problem, parse_algorithm(algorithm), arithmetic(run), direction, programs, stored)
    if not (isinstance(a, Moments) and isinstance(b, Moments)):
        return _of_arrays(a, b, *how)
    return _predicted(a, b, *how)[0]


def _of_arrays(a: Any, b: Any, *how: Any) -> Prediction:
    if isinstance(a, Moments) or isinstance(b, Moments):
        raise TypeError("predict of an array and moments; expected two arrays or two moments")
    problem, algorithm, _, direction, programs, _ = how
    first, second = alive(a, b, direction)
    found, factors = _predicted(Moments.measured(first), Moments.measured(second), *how)
    of = programs or programs_of(algorithm)
    each = errors(a, b, problem, algorithm, of, direction, factors)
    y = getattr(convolution, direction)(a, b, problem)
    rms = found.relative_rms
    if math.isfinite(rms) and y.any():
        rms = float(np.sqrt((each**2).sum() / (y**2).sum()))
    return replace(found, relative_rms=rms, errors=each)


def _predicted(
    a: Moments,
    b: Moments,
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
    programs: ProgramsOf | None,
    stored: bool,
) -> tuple[Prediction, list[tuple[Region, float]]]:
    """The prediction, and what the regions' expected squares of errors are of their energy."""
    layer, boxes = tiling(problem, algorithm, direction)
    factors = [(box, 0.0) for box in boxes]
    if isinstance(run, Exact) or not boxes:
        return Prediction(0.0, 0.0, 0.0, {}), factors
    if not all(math.isfinite(v) for m in (a, b) for v in (m.mean, m.variance)):
        return Prediction(math.nan, math.nan, math.nan, {}), [(box, math.nan) for box in boxes]
    of = programs or programs_of(algorithm)
    square = power = bias = absolute = count = overflow = most = 0.0
    sources: dict[str, float] = {}
    for i, box in enumerate(boxes):
        pairs = zip(box.segments, layer.output, strict=True)
        whole = math.prod(min(s.outputs, size - s.start) for s, size in pairs)
        erring = energy = 0.0
        for kind in kinds(layer, box):
            sides = zip(box.segments, kind.edges, kind.kept, strict=True)
            axes = [axis_of(s.tile, of(s.tile), run, edges, kept) for s, edges, kept in sides]
            if not all(made.held for made in axes):
                return Prediction(math.inf, math.inf, math.nan, {}, 1.0), factors
            tile = _Tile(axes, run, a, b, depth_of(layer, box) * kind.inside)
            if not tile.depth:
                continue
            parts = tile.variances(stored)
            mean = tile.bias + tile.constants[0]
            variance = sum(parts.values())
            parts["bias"] = mean**2
            outputs = whole * kind.share
            count += outputs
            overflow += outputs * tile.mean_of(tile.overflow)
            power += outputs * tile.power
            expected = tile.mean_of(variance + mean**2)
            most = max(most, float((variance + mean**2).max()))
            erring, energy = erring + kind.share * expected, energy + kind.share * tile.energy
            square += outputs * expected
            bias += outputs * (tile.mean_of(mean) / abs(tile.mean) if tile.mean else 0.0)
            away = tile.mean**2 > AWAY**2 * (tile.power - tile.mean**2)
            size = tile.mean_of(mean_size(mean, np.sqrt(variance)))
            absolute += outputs * size / abs(tile.mean) if away else math.nan
            for name, v in parts.items():
                sources[name] = sources.get(name, 0.0) + outputs * tile.mean_of(v)
        factors[i] = (box, erring / energy if energy else 0.0)
    if not power or not square:
        return Prediction(0.0, 0.0, 0.0, {}), factors
    shares = {name: v / square for name, v in sources.items()}
    rms, mare, drift = math.sqrt(square / power), absolute / count, bias / count
    if overflow * layer.batch * layer.out_channels >= 0.5:  # of one, more likely than not
        rms, mare, drift = math.inf, math.inf, math.nan
    uneven = most * count / square
    return Prediction(rms, mare, drift, shares, overflow / count, uneven), factors


class _Tile:
    """Errors of the outputs (n0, n1, …) of one kind of tile."""

    def __init__(
        self,
        axes: list[Axis],
        run: Arithmetic,
        a: Moments,
        b: Moments,
        depth: float,
    ) -> None:
        self.axes = axes
        self.run, self.a, self.b, self.depth = run, a, b, depth
        self.units = Units.of(run)
        self.ranges = Ranges(self.axes, run, a, b, depth)

    @property
    def taps(self) -> float:
        return math.prod(float(axis.taps @ axis.kept) for axis in self.axes)

    @property
    def mean(self) -> float:
        """E y."""
        return self.depth * self.taps * self.a.mean * self.b.mean

    @property
    def power(self) -> float:
        """E y²."""
        mean, variance = self._moments(self._outer([axis.all_outputs for axis in self.axes]))
        return float((mean**2 + variance).reshape(-1)[0])

    def _outer(self, tables: list[Array]) -> Array:
        """Tables (n_d, 2, 2) of all dimensions as one (n0, n1, …, 2, 2)."""
        return reduce(lambda s, t: s[..., None, :, :] * t, tables)

    def _single(self, tables: list[Array]) -> Array:
        """Σ over w and x of independent errors, one for each of ``depth`` channels."""
        return self.depth * np.einsum(
            "...wx,w,x->...", self._outer(tables), self.b.powers, self.a.powers
        )

    def _moments(self, forms: Array) -> tuple[Array, Array]:
        """|mean| and variance of sums over the channels of bilinear forms (..., 2, 2)."""
        weights = np.outer(self.b.powers, self.a.powers)
        mean = self.depth * np.sqrt(weights[1, 1] * forms[..., 1, 1])
        weights[1, 1] = 0
        return mean, self.depth * np.einsum("...wx,wx->...", forms, weights)

    def variances(self, stored: bool) -> dict[str, Array]:
        """Variance of the outputs' errors (n0, n1, …), by source."""
        units, axes = self.units, self.axes
        transform = CONSTANT * units.transform.relative**2
        of_filters = CONSTANT * Units.of(self.run.of_filters).transform.relative ** 2

        def steps(current: str, done: str, waiting: str) -> list[list[Array]]:
            return [
                [
                    getattr(x, done if e < d else current if e == d else waiting)
                    for e, x in enumerate(axes)
                ]
                for d in range(len(axes))
            ]

        inputs = sum(self._single(t) for t in steps("inputs", "state", "early"))
        filters = sum(self._single(t) for t in steps("filters", "state", "early"))
        shape = tuple(axis.tile.n for axis in axes)
        parts = {
            "input transform": transform * inputs,
            "filter transform": of_filters * filters,
            "output transform": sum(self._outputs(d) for d in range(len(axes))),
            "operands": self._operands(),
            "accumulation": self._accumulation[0],
            "constants": self.constants[1],
            "underflow": self._put_out(self.ranges.underflow(self._terms, stored)),
        }
        if not stored:
            relative = units.storage.relative**2 * (self.a.roundoff + self.b.roundoff)
            parts["storage"] = relative * self._single([axis.early for axis in axes])
        return {name: np.broadcast_to(v, shape) for name, v in parts.items()}

    def _rounded(self, d: int) -> tuple[Array, Array]:
        """|mean| and variance of what AT rounds along dimension d, outputs behind it (1, …)."""
        behind, ahead = self.axes[:d], self.axes[d + 1 :]
        factors = [axis.all_outputs for axis in behind] + [self.axes[d].rounded]
        return self._moments(self._outer([*factors, *(axis.products for axis in ahead)]))

    def _outputs(self, d: int) -> Array:
        """What AT's roundings along dimension d add: behind it are outputs, ahead are states."""
        first, second = self._rounded(d)
        once = Units.of(self.run.of_outputs).transform.relative
        errors = rounding(once, 1.0, first, second)
        errors = errors.reshape(errors.shape[d:])
        for slopes in (self.axes[d].slopes, *(axis.at**2 for axis in self.axes[d + 1 :])):
            errors = np.tensordot(errors, slopes, axes=(0, 1))
        return errors.reshape((1,) * d + errors.shape)

    def _operands(self) -> Array:
        """Operands rounded to the product format; inputs and taps as stored may be exact."""
        run = self.run
        if not isinstance(run, Float) or not self.units.product.relative:
            return np.zeros(())
        stored = run.parts == 1 and Unit.of(run.product, run.storage).relative == 0
        states = self._single([axis.state for axis in self.axes])
        total = 9 * CONSTANT**2 * dropped_square(run.product, run.parts) * states
        # three times: over the squares of the binades, of which CONSTANT and roundoff are a third
        for name, data, of in (("kept_g", self.b, run.of_filters), ("kept_bt", self.a, run)):
            made, held = (
                3 * left_square(run.product, run.parts, fmt.precision)
                for fmt in (of.transform, run.transform)
            )
            kept = self._single([getattr(axis, name) for axis in self.axes])
            total = total + made * CONSTANT * (states - kept)
            total = total + held * (0 if stored else data.roundoff) * kept
        return total

    @property
    def bias(self) -> Array:
        """Mean of the outputs' errors that truncation makes."""
        return self._accumulation[1]

    @property
    def overflow(self) -> Array:
        """Chance that an output is not finite, whichever value on its way is not (n0, n1, …)."""
        made = [self._rounded(d) for d in range(len(self.axes))]
        values = [(m.reshape(m.shape[d:]), v.reshape(v.shape[d:])) for d, (m, v) in enumerate(made)]
        mean = np.array(self.mean)
        return self.ranges.overflow(self._terms, values, (mean, np.array(self.power) - mean**2))

    @property
    def energy(self) -> float:
        """E[(AT)² Σ (G w)² (BT x)²], the mean over the outputs (see componentwise)."""
        states = self.depth * self.ranges.filters.square * self.ranges.inputs.square
        return self.mean_of(self._put_out(states))

    def mean_of(self, outputs: Array) -> float:
        """The mean over the outputs that the map has, of (n0, n1, …) or fewer axes."""
        shape = tuple(axis.tile.n for axis in self.axes)
        weights = reduce(np.multiply.outer, [axis.kept for axis in self.axes])
        return float((np.broadcast_to(outputs, shape) * weights).sum())

    def _put_out(self, states: Array) -> Array:
        """What independent errors of these variances in the states are in the outputs."""
        for axis in self.axes:  # the leading dimension goes, its outputs come last
            states = np.tensordot(states, axis.at**2, axes=(0, 1))
        return states

    @property
    def _terms(self) -> Products:
        """The products that a state sums."""
        return products_of(self.ranges.filters, self.ranges.inputs, self.run)

    @cached_property
    def _accumulation(self) -> tuple[Array, Array]:
        """Variance and mean of the errors of the sums, in the outputs."""
        mean, variance = self._terms.mean, self._terms.variance
        if isinstance(self.run, Float):
            noise, bias, shrinkage = sum_errors(self.run, self.depth, self._terms)
            once = self.units.result
        else:  # mpmath: exact, then rounded
            noise, bias, shrinkage = (np.zeros_like(mean) for _ in range(3))
            once = self.units.transform
        second = self.depth * variance + (self.depth * mean) ** 2
        noise = noise + CONSTANT * once.relative**2 * second
        noise = self._put_out(noise)
        for axis in self.axes:
            bias = np.tensordot(bias, axis.at, axes=(0, 1))
        smaller = float(shrinkage.mean()) * (self.power - self.mean**2)
        return noise + smaller, bias

    @cached_property
    def constants(self) -> tuple[Array, Array]:
        """Mean and variance of the errors that rounded constants make, in the outputs."""
        shape = tuple(axis.tile.n for axis in self.axes)
        wrong = [d for d, axis in enumerate(self.axes) if axis.error is not None]
        total, mean = np.zeros((*shape, 2, 2)), np.zeros(shape)

        def forms(d: int) -> list[Any]:
            return [axis.error if e == d else axis.form for e, axis in enumerate(self.axes)]

        for d in wrong:
            sums = [(f @ x.inside).sum(axis=1) for x, f in zip(self.axes, forms(d), strict=True)]
            mean = mean + reduce(np.multiply.outer, sums)
            for e in wrong:
                pairs = zip(forms(d), forms(e), strict=True)
                total = total + self._outer(
                    [x.bilinear(s, t) for x, (s, t) in zip(self.axes, pairs, strict=True)]
                )
        total[..., 1, 1] = 0  # the mean, which adds up
        spread = np.einsum("...wx,w,x->...", total, self.b.powers, self.a.powers)
        return self.depth * self.a.mean * self.b.mean * mean, self.depth * spread
