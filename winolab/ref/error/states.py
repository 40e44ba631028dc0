"""Which values of a tiled algorithm leave the range of their format, and how likely.

Every stage has its own format: transformed inputs and filters are rounded to what is multiplied,
sums to what accumulates them. States are taken as normal, as in winolab.ref.error.ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Problem
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.arithmetic.formats import Format
from winolab.ref.arithmetic.simulated import Float
from winolab.ref.error.edges import kinds
from winolab.ref.error.forms import axis_of
from winolab.ref.error.moments import Moments, erf
from winolab.ref.error.partial_sums import beyond
from winolab.ref.error.ranges import Operand, Ranges, products_of
from winolab.ref.error.roundings import depth_of, part, tiling

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stage:
    """The states of one stage: chances that one is too large for the ``format``, or that it is not
    0 and below its normal numbers, where digits are lost. Arrays over the states (α0, α1, …)."""

    name: str
    format: str
    overflow: Array
    underflow: Array

    def worst(self, what: str) -> tuple[float, tuple[int, ...]]:
        """The largest chance of "overflow" or "underflow", and the state that has it."""
        chances = getattr(self, what)
        at = np.unravel_index(int(np.argmax(chances)), chances.shape)
        return float(chances[at]), tuple(map(int, at))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: the largest chances and their states."""
        found = {"stage": self.name, "format": self.format}
        for what in ("overflow", "underflow"):
            chance, state = self.worst(what)
            found |= {what: chance, f"{what}_state": list(state)}
        return found


@np.errstate(all="ignore")
def stages(
    a: Moments,
    b: Moments,
    problem: Problem,
    algorithm: Algorithm,
    run: Float,
    direction: str,
) -> tuple[Stage, ...]:
    """The stages of the tile that most of the results belong to.

    Raises ValueError for an algorithm that is not tiled in that direction.
    """
    layer, boxes = tiling(problem, algorithm, direction)
    if not boxes:
        return ()
    box = max(boxes, key=lambda box: np.prod([s.outputs for s in box.segments]))
    kind = max(kinds(layer, box), key=lambda kind: kind.share, default=None)
    if kind is None:  # all that meets its outputs is padding
        return ()
    of = programs_of(algorithm)
    sides = zip(box.segments, kind.edges, kind.kept, strict=True)
    axes = [axis_of(s.tile, of(s.tile), run, edges, kept) for s, edges, kept in sides]
    if not all(axis.held for axis in axes):
        return ()
    depth = depth_of(layer, box) * kind.inside
    return tuple(_stages(Ranges(axes, run, a, b, depth), run, depth))


def _stages(ranges: Ranges, run: Float, depth: float) -> Iterator[Stage]:
    of_x, of_w = ranges.exponents
    product = part(run) if run.parts > 1 else run.product
    sides = (
        ("input transform", ranges.inputs, of_x, run.transform),
        ("filter transform", ranges.filters, of_w, run.of_filters.transform),
    )
    for name, operand, exponent, transform in sides:
        narrow = min(product, transform, key=lambda fmt: fmt.max)
        mean, variance = _scaled(operand, exponent)
        nonzero = 1 - operand.data.zeros**operand.counts
        most = operand.gain * operand.data.largest * 2.0**exponent
        over = beyond(narrow.max, mean, variance, most)
        yield Stage(name, narrow.name, over, nonzero * _below(product, mean, variance))
    terms = products_of(ranges.filters, ranges.inputs, run)
    scale = 2.0 ** (of_x + of_w)
    sums = scale * depth * terms.mean, scale**2 * depth * terms.variance
    largest = ranges.inputs.data.largest * ranges.filters.data.largest
    most = scale * depth * ranges.inputs.gain * ranges.filters.gain * largest
    narrow = min(run.accumulate, run.of_sums, key=lambda fmt: fmt.max)
    below = np.minimum(1.0, depth * terms.nonzero) * _below(run.sums or run.accumulate, *sums)
    yield Stage("sums", narrow.name, beyond(narrow.max, *sums, most), below)


def _scaled(operand: Operand, exponent: int) -> tuple[Array, Array]:
    return operand.mean * 2.0**exponent, operand.variance * 4.0**exponent


def _below(fmt: Format, mean: Array, variance: Array) -> Array:
    """Chance that N(mean, variance) is below fmt's normal numbers."""
    deviation = np.sqrt(2 * np.maximum(variance, 1e-300))
    least = 2.0**fmt.emin
    return (erf((least - mean) / deviation) + erf((least + mean) / deviation)) / 2
