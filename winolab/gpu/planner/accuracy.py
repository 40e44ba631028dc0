"""How much a plan's results err on zero-mean data, as the reference predicts it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from winolab.algorithm import Problem, Tile, tiled
from winolab.arguments.tolerance import Tolerance, missed
from winolab.gpu.planner.base_plan import WHOLE_SUMS
from winolab.gpu.planner.correlation import scaling
from winolab.gpu.planner.request import DTYPES, Plan, Sum
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.metrics import NORMAL
from winolab.ref.error.predict import CONSTANT, Moments, predict
from winolab.ref.tolerance.cheapest import SURE, SURE_OF_EXACT, U11, own_size
from winolab.ref.tolerance.normwise import of_tile, products

FP32 = FORMATS["fp32"].unit_roundoff
CHUNK = 16  # products that an instruction sums at most
UNITS = {DTYPES[name]: f.unit_roundoff for name, f in FORMATS.items() if name in DTYPES}


def within(tolerance: Tolerance, plans: Iterable[Plan], precision: str) -> list[Plan]:
    """The plans whose error keeps to the tolerance, of data uniform on [-1, 1].

    Raises ValueError where there is none, and says the least that can be had.
    """
    errors = [(incurred(tolerance.kind, p), p) for p in plans]
    if kept := [p for error, p in errors if error <= tolerance.most]:
        return kept
    least, best = min(errors, key=lambda found: found[0])
    raise missed(tolerance, least, precision, f"{best.kernel} in {best.precision}")


def incurred(kind: str, plan: Plan) -> float:
    """The error that a tolerance of that ``kind`` limits, of a plan's results."""
    plan = plan.primary
    if kind == "proven":
        return _proven(plan)
    direct = all(t.alpha == 1 for t in plan.tiles)
    if kind == "componentwise" and not direct:
        return math.inf
    if kind == "direct":
        return 1.0 if direct else predicted_rms(plan, U11) / direct_rms(plan, U11)
    rounded = CONSTANT * UNITS[plan.out_dtype] ** 2
    summed = max(0.0, predicted_rms(plan, U11) ** 2 - rounded)
    exact = direct and plan.precision in ("fp16", "bf16")
    error = math.sqrt((SURE_OF_EXACT if exact else SURE) ** 2 * summed + SURE**2 * rounded)
    if kind == "predicted":
        return error
    return error * own_size(products(plan.problem, plan.direction), (U11, U11))


def _proven(plan: Plan) -> float:
    """What no data exceed, relative to K·max|a|·max|b|; infinite of gradients that transform."""
    unit = UNITS[plan.out_dtype] if plan.out_dtype != "float32" else 0.0
    tiles = tuple(t for t in plan.tiles if t.alpha > 1)
    count = terms = products(plan.problem, plan.direction)
    if plan.direction == "backward_filter":
        if tiles:
            return math.inf
        # each part of a sum may end in a chunk that is not full, and is added
        depth = count + CHUNK * math.ceil(max((s.count for s in plan.sums), default=1.0))
    else:
        taps, terms = plan.solved.filter, products(plan.solved, plan.direction)
        alone = len(taps) - len(tiles)
        pieces = (-(-wide // t.r) for wide, t in zip(taps[alone:], tiles, strict=True))
        depth = terms // math.prod(taps[alone:]) * math.prod(pieces)
    run = arithmetic(plan.simulated)
    scaled = scaling(plan.simulated) if tiles else None
    limit = of_tile(tiles, depth, plan.points, scaled, run, (1.0, 1.0), True) / count
    return limit * (1 + unit) + unit


def predicted_rms(plan: Plan, data: Moments = NORMAL) -> float:
    """Predicted relative RMS error of a plan's results, their rounding to their type included.

    ``data``: moments of both operands, of mean 0. What a kernel falls back to does not count.
    """
    plan, written = plan.primary, plan.out_dtype
    if plan.direction == "backward_filter":
        return _with_rounding(_gradient(plan, data), written)
    return correlation_rms(
        plan.solved,
        plan.direction,
        plan.tiles,
        plan.points,
        plan.simulated,
        written,
        data,
        plan.split_sums,
    )


def direct_rms(plan: Plan, data: Moments = NORMAL) -> float:
    """The same of direct products in the plan's arithmetic, summed in its parts."""
    if plan.direction == "backward_filter":
        sums = (replace(s, products=s.products * taps_of(plan, s), tile=DIRECT) for s in plan.sums)
        summed = _of_sums(sums, (DIRECT,), "", plan.simulated, data, None)
        return _with_rounding(summed, plan.out_dtype)
    return correlation_rms(
        plan.problem, plan.direction, (), "", plan.simulated, plan.out_dtype, data, plan.split_sums
    )


def taps_of(plan: Plan, part: Sum) -> int:
    """Products of a sum's states, of direct products in their place."""
    return math.prod(t.r for t in ((part.tile,) if part.tile else plan.tiles))


def correlation_rms(
    problem: Problem,
    direction: str,
    tiles: tuple[Tile, ...],
    points: str,
    simulated: str,
    written: str,
    data: Moments = NORMAL,
    split_sums: tuple[tuple[float, int], ...] = WHOLE_SUMS,
) -> float:
    """The same of forward and backward data in the last dimensions' ``tiles``, none of direct
    products; ``simulated`` names the arithmetic, ``written`` the results' type.

    ``split_sums``: as a Plan has them. Of m parts each errs as a correlation of an m-th of the
    channels does, relative to an m-th of the mean square; adding them up is left out, which is
    compensated, or rounds m times beside the hundreds of roundings of a sum.
    """
    tiles = () if tiles == (DIRECT,) else tiles
    same = _in_pieces(problem, direction, tiles)
    squared = 0.0
    for share, parts in split_sums:
        channels = -(-same.in_channels // parts)
        part = replace(same, in_channels=channels)
        squared += share * _squared(part, tiles, points, simulated, data, scaling(simulated))
    return _with_rounding(squared, written)


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
        low, high = (round(end * (narrow - 1) / max(1, wide - 1)) for end in there)
        padding.append((low, high))
    inputs = [
        max(1, size + narrow - 1 - sum(ends))
        for size, narrow, ends in zip(outputs, taps, padding, strict=True)
    ]
    once = (1,) * p.ndim
    return Problem(1, channels, 1, tuple(inputs), taps, once, tuple(padding), once)


def _with_rounding(squared: float, written: str) -> float:
    return math.sqrt(squared + CONSTANT * UNITS[written] ** 2)


def _gradient(plan: Plan, data: Moments) -> float:
    """Mean square of the relative errors of a gradient's sums."""
    return _of_sums(plan.sums, plan.tiles, plan.points, plan.simulated, data, plan.scaling)


def _of_sums(
    sums: Iterable[Sum],
    tiles: tuple[Tile, ...],
    points: str,
    simulated: str,
    data: Moments,
    scaling: str | None,
) -> float:
    """Mean square of the relative errors of sums over positions, as a plan's ``sums`` have them. Of
    m equal parts the k-th is added to k - 1, which rounds a sum of k/m of the mean square."""
    total = 0.0
    for s in sums:
        products = max(1, round(s.products))
        own = (s.tile,) if s.tile else tiles
        sizes, taps = (4 * t.n + t.r - 1 for t in own), (t.r for t in own)
        layer = Problem.of((1, *sizes, products), (1, *taps, products))
        each = _squared(layer, own, points, simulated, data, scaling)
        adding = (s.count + 1) / 2 - 1 / s.count
        total += s.fraction * (each + CONSTANT * FP32**2 * adding)
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
