"""How large a layer's results are, and whether their format holds them."""

from __future__ import annotations

import math

import numpy as np

from winolab.api.layer import Layer
from winolab.problem import shapes
from winolab.ref.arithmetic.formats import Format
from winolab.ref.tolerance.cheapest import mean_square
from winolab.ref.tolerance.normwise import products


def overflowing(
    layer: Layer, written: Format | None, exact: np.ndarray | None, on_the_way: float
) -> float:
    """The chance that any result is not finite: in a format ``on_the_way``, which is that of one
    result, or beyond the largest number of its own."""
    if written and exact is not None and (np.abs(exact) > written.max).any():
        return 1.0
    each = on_the_way
    if written and exact is None:
        each += _beyond(layer, written.max)
    results = math.prod(shapes(layer.direction, layer.problem)[2])
    return -math.expm1(results * math.log1p(-each)) if each < 1 else 1.0


def _beyond(layer: Layer, most: float) -> float:
    """The chance that the magnitude of one result, which is a sum of many, is above ``most``."""
    from scipy.special import ndtr

    a, b = layer.data.moments
    mean = products(layer.problem, layer.direction) * a.mean * b.mean
    deviation = math.sqrt(max(0.0, rms_of(layer, None) ** 2 - mean**2))
    if not deviation:
        return float(abs(mean) > most)
    return sum(float(ndtr(-end / deviation)) for end in (most - mean, most + mean))


def rms_of(layer: Layer, exact: np.ndarray | None) -> float:
    """Root mean square of the results: measured, or expected of the moments."""
    if exact is not None:
        return float(np.sqrt((exact**2).mean()))
    return math.sqrt(mean_square(products(layer.problem, layer.direction), layer.data.moments))
