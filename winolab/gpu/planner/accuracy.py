"""How much a plan's results err on zero-mean data, as the reference predicts it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from winolab.algorithm import Problem, Tile, tiled
from winolab.gpu.planner.correlation import scaling
from winolab.gpu.planner.request import DTYPES, Plan
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.metrics import NORMAL
from winolab.ref.error.predict import CONSTANT, Moments, predict

FP32 = FORMATS["fp32"].unit_roundoff
UNITS = {DTYPES[name]: f.unit_roundoff for name, f in FORMATS.items() if name in DTYPES}


def predicted_rms(plan: Plan, data: Moments = NORMAL) -> float:
    """Predicted relative RMS error of a plan's results, their rounding to their type included.

    ``data``: moments of both operands, of mean 0. What a kernel falls back to does not count.
    """
    plan, written = plan.primary, plan.out_dtype
    if plan.direction == "backward_filter":
        return _with_rounding(_gradient(plan, data), written)
    return correlation_rms(
        plan.problem,
        plan.direction,
        plan.tiles,
        plan.points,
        plan.simulated,
        written,
        data,
    )


def correlation_rms(
    problem: Problem,
    direction: str,
    tiles: tuple[Tile, ...],
    points: str,
    simulated: str,
    written: str,
    data: Moments = NORMAL,
) -> float:
    """The same of forward and backward data in the last dimensions' ``tiles``, none of direct
    products; ``simulated`` names the arithmetic, ``written`` the results' type."""
    tiles = () if tiles == (DIRECT,) else tiles
    same = _in_pieces(problem, direction, tiles)
    scaled = _squared(same, tiles, points, simulated, data, scaling(simulated))
    return _with_rounding(scaled, written)


def _in_pieces(problem: Problem, direction: str, tiles: tuple[Tile, ...]) -> Problem:
    """A correlation as exact as this one: pieces of r taps of a wider filter are as many times the
    channels, padded by their share. Batch and output channels do not matter."""
    p, forward = problem, direction == "forward"
    channels = (p.in_channels if forward else p.out_channels) // p.groups
    alone = p.ndim - len(tiles)  # dimensions that are summed directly
    outputs = list(p.output if forward else p.input)
    outputs[alone:] = [
        -(-size // t.n) * t.n for size, t in zip(outputs[alone:], tiles, strict=True)
    ]
    taps = p.filter[:alone] + tuple(t.r for t in tiles)
    padding = []
    for wide, narrow, ends in zip(p.filter, taps, p.padding, strict=True):
        channels *= -(-wide // narrow)
        there = (end if forward else max(0, wide - 1 - end) for end in ends)
        padding.append([round(end * (narrow - 1) / max(1, wide - 1)) for end in there])
    inputs = [
        max(1, size + narrow - 1 - sum(ends))
        for size, narrow, ends in zip(outputs, taps, padding, strict=True)
    ]
    return Problem.of((1, *inputs, channels), (1, *taps, channels), padding=padding)


def _with_rounding(squared: float, written: str) -> float:
    return math.sqrt(squared + CONSTANT * UNITS[written] ** 2)


def _gradient(plan: Plan, data: Moments) -> float:
    """Mean square of the relative errors of sums over positions, as a plan's ``sums`` have them. Of
    m equal parts the k-th is added to k - 1, which rounds a sum of k/m of the mean square."""
    total, (tile,) = 0.0, plan.tiles
    for s in plan.sums:
        products = max(1, round(s.products))
        layer = Problem.of((1, 4 * tile.n + tile.r - 1, products), (1, tile.r, products))
        each = _squared(layer, (tile,), plan.points, plan.simulated, data, plan.scaling)
        adding = (s.parts + 1) / 2 - 1 / s.parts
        total += s.share * (each + CONSTANT * FP32**2 * adding)
    return total


@lru_cache(maxsize=4096)
def _squared(
    problem: Problem,
    tiles: tuple[Tile, ...],
    points: str,
    simulated: str,
    data: Moments,
    scaling: str | None,
) -> float:
    """Mean square of the relative errors of a correlation's sums, by transforms of a scaling."""
    run, algorithm = arithmetic(simulated), tiled(tiles, points)
    if algorithm.tiles:
        algorithm = replace(algorithm, scaling=scaling)
    return predict(data, data, problem, algorithm, run).relative_rms ** 2
