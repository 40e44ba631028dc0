"""Energies of the spectra that overlap-save multiplies: what a mean of the data adds, and where.

A tile's spectrum X_s, s over the N states, of inputs x with mean μ and variance σ² has

    E|X_s|² = μ² |M_s|² + σ² c,

where M is the transform of what lies inside of the map, as ones, and c their number: the mean is at
the lowest frequencies, the variance at all of them alike. So it is for a piece of the filter, of
which the first taps are ones. Over K products of both, Σ_k X_k W̄_k, means add up to their square.
All are products over the dimensions, and means over tiles, pieces and the outputs of the map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Problem
from winolab.ref.algorithms.fft import Window
from winolab.ref.algorithms.im2col import masked
from winolab.ref.error.edges import runs_of
from winolab.ref.error.moments import EXPECTED, Moments

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Energies:
    """Expected squares, of a map that is not empty; in an output where nothing else is said.

    depth: K. counts: inputs of a tile and taps of a piece, at most. power: E y². apart: Σ_k
    E|X_k W_k|² by state; steady: |Σ_k E X_k E W̄_k|² by state. spread: K times the mean of E|X|²
    over the states, times that of E|W|²: what errors of a transform, that are alike in all states,
    meet. filled: the part of the transforms' inputs that lie inside. alike: how much more of what
    rounding the states of an operand errs lies on outputs, of either: along a dimension in which it
    has one number, the first, its states are alike, and so are their errors, which stay there.
    """

    depth: int
    counts: tuple[int, int]
    power: float
    apart: Array
    steady: Array
    spread: float
    filled: float
    alike: tuple[float, float]

    @classmethod
    def of(
        cls, a: Moments, b: Moments, layer: Problem, tiles: Sequence[Window], channels: int
    ) -> Energies:
        """Those of a forward problem of unit stride, whose filter is cut into pieces."""
        depth = channels * math.prod(-(-f // t.r) for f, t in zip(layer.filter, tiles, strict=True))
        along = [_dimension(layer, tile, d) for d, tile in enumerate(tiles)]
        sides = zip(*along, strict=True)
        both, of_x, of_w, ones, steady = (reduce(np.multiply.outer, side) for side in sides)
        (x, sx), (w, sw) = ((m.mean**2, m.variance) for m in (a, b))
        met = [_met(layer, d) for d in range(layer.ndim)]
        power = (channels * a.mean * b.mean) ** 2 * math.prod(float((n**2).mean()) for n in met)
        each = (x + sx) * (w + sw) - x * w
        power += channels * each * math.prod(float(n.mean()) for n in met)
        size = both.size
        inputs = math.prod(min(n, t.inputs) for n, t in zip(layer.input, tiles, strict=True))
        taps = math.prod(min(n, t.r) for n, t in zip(layer.filter, tiles, strict=True))
        found = float(ones.flat[0])
        more = [
            float(n.mean()) * t.alpha / side[3][0]
            for n, t, side in zip(met, tiles, along, strict=True)
        ]
        first = [n == 1 and not ends[0] for n, ends in zip(layer.input, layer.padding, strict=True)]
        alike = [
            math.prod(m for m, one in zip(more, ones, strict=True) if one)
            for ones in (first, [n == 1 for n in layer.filter])
        ]
        return cls(
            depth,
            (inputs, taps),
            power,
            depth * (x * w * both + x * sw * of_x + sx * w * of_w + sx * sw * ones) / size**2,
            depth**2 * x * w * steady / size**2,
            depth * (x + sx) * (w + sw) * found / size,
            found / size / taps,
            (alike[0], alike[1]),
        )


def largest(data: Moments, count: int) -> float:
    """The largest part of a spectrum of so many numbers, about."""
    likely = count * abs(data.mean) + EXPECTED * math.sqrt(count * data.variance)
    return min(max(likely, data.peak), count * data.largest)


def _dimension(layer: Problem, tile: Window, d: int) -> tuple[Array, ...]:
    """By state of a dimension, means of |M_s|² of tiles times that of pieces of the filter, of
    either times the other's number of ones, of both numbers; and of |M_s| of both, squared."""
    (segment,) = masked(layer.output[d], tile)
    taps, pieces = layer.filter[d], -(-layer.filter[d] // tile.r)
    found = runs_of(layer, segment, d)
    beyond = (found.begin + found.tiles == segment.tiles) * (segment.outputs - layer.output[d])
    outputs = found.tiles * tile.n - beyond
    inputs, ones = np.abs(np.fft.fft(found.masks, axis=1)), found.masks.sum(axis=1)
    last = (found.piece + found.pieces == pieces).astype(int)
    total = np.zeros((5, tile.alpha))
    for length, counted in ((tile.r, found.pieces - last), (taps - (pieces - 1) * tile.r, last)):
        filters = np.abs(np.fft.fft(np.arange(tile.alpha) < length))
        weights = outputs * counted
        squares = weights @ inputs**2
        count = weights @ ones
        total += [
            squares * filters**2,
            squares * length,
            count * filters**2,
            np.full(tile.alpha, count * length),
            weights @ inputs * filters if pieces > 1 else squares * filters**2,
        ]
    total /= layer.output[d] * pieces
    return (*total[:4], total[4] ** 2 if pieces > 1 else total[4])


def _met(layer: Problem, d: int) -> Array:
    """How many taps of a dimension's filter meet inputs, of each output."""
    first = np.arange(layer.output[d], dtype=float) - layer.padding[d][0]
    return np.maximum(0, np.minimum(layer.input[d], first + layer.filter[d]) - np.maximum(0, first))
