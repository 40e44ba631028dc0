"""How much a plan's results err on zero-mean data, as the reference predicts it."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from winolab.gpu.plan import DTYPES
from winolab.nouns import Problem, Tile, tiled
from winolab.ref.arithmetic import arithmetic
from winolab.ref.errors import NORMAL
from winolab.ref.formats import FORMATS
from winolab.ref.im2col import DIRECT
from winolab.ref.predict import CONSTANT, Moments, predict

FP32 = FORMATS["fp32"].unit_roundoff
UNITS = {DTYPES[name]: f.unit_roundoff for name, f in FORMATS.items() if name in DTYPES}


def predicted_rms(plan: Any, data: Moments = NORMAL) -> float:
    """Predicted relative RMS error of a plan's results, their rounding to their type included.

    ``data``: moments of both operands, of mean 0. What a kernel falls back to does not count.
    """
    plan = getattr(plan, "split", plan)  # what a guarded plan tries first
    squared = _gradient if plan.direction == "backward_filter" else _correlation
    written = getattr(plan, "out_dtype", DTYPES[plan.precision])
    return math.sqrt(squared(plan, data) + CONSTANT * UNITS[written] ** 2)


def _correlation(plan: Any, data: Moments) -> float:
    """Mean square of the relative errors of sums over channels; wide filters run in pieces of r
    taps."""
    problem, tiles = plan.problem, plan.algorithm.tiles or (DIRECT,)
    alone = len(problem.filter) - len(tiles)  # dimensions that are summed directly
    forward = plan.direction == "forward"
    channels = problem.in_channels if forward else problem.out_channels
    pieces = (-(-n // t.r) for n, t in zip(problem.filter[alone:], tiles, strict=True))
    summed = channels // problem.groups * math.prod(problem.filter[:alone]) * math.prod(pieces)
    return _squared(tiles, plan.points, plan.simulated, summed, data)


def _gradient(plan: Any, data: Moments) -> float:
    """The same of sums over positions, as a plan's ``sums`` have them. Of m equal parts the k-th is
    added to k - 1, which rounds a sum of k/m of the mean square."""
    total = 0.0
    for s in plan.sums:
        products = max(1, round(s.products))
        each = _squared((plan.tile,), plan.points, plan.simulated, products, data)
        adding = (s.parts + 1) / 2 - 1 / s.parts
        total += s.share * (each + CONSTANT * FP32**2 * adding)
    return total


@lru_cache(maxsize=4096)
def _squared(
    tiles: tuple[Tile, ...], points: str, simulated: str, summed: int, data: Moments
) -> float:
    """Of sums of so many products of a state."""
    outputs, taps = [4 * t.n + t.r - 1 for t in tiles], [t.r for t in tiles]
    layer = Problem.of((1, *outputs, summed), (1, *taps, summed))
    run = arithmetic(simulated)
    return predict(data, data, layer, tiled(tiles, points), run).relative_rms ** 2
