"""How far a random problem's result may be from the exact one.

Proven bounds where the package has one (winolab.ref.error.proven). WinRS has none: here its longest
path multiplies the largest magnitudes, which bounds every output alike. Neither have FFTs of other
lengths than powers of two, nor products of few exponents, where bounds stay infinite.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tests.support.definition import exact
from tests.support.drawn import Case
from winolab import Algorithm, Problem, arithmetic, parse_algorithm
from winolab.ref.algorithms.engine import gains
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.algorithms.winrs.gradient import phases
from winolab.ref.algorithms.winrs.plan import partition
from winolab.ref.arithmetic.exact import Mp
from winolab.ref.arithmetic.simulated import Arithmetic, Float, summed
from winolab.ref.arithmetic.split import Scale
from winolab.ref.error.proven import proven
from winolab.ref.error.roundings import Cost, Units
from winolab.ref.operands import arithmetic_of


def run_of(case: Case) -> Arithmetic:
    """What the arrays are computed in."""
    run = arithmetic_of(case.precision, *case.operands)
    if isinstance(run, Float) and run.parts > 1 and case.arguments.get("scale") is not None:
        run = replace(run, scale=Scale.of_caller(case.arguments["scale"]))
    return run


def limits_of(case: Case) -> np.ndarray:
    """Bound of |computed − exact| for each output, before it is rounded to its dtype."""
    run, g = run_of(case), case.geometry
    shapes = g.shapes(case.direction)
    if run.exact or 0 in sum(shapes, ()):
        return np.zeros(shapes[2])
    algorithm = parse_algorithm(case.algorithm or "direct")
    problem = Problem.of(
        g.x_shape, g.w_shape, stride=g.stride, padding=g.padding, dilation=g.dilation,
        groups=g.groups,
    )  # fmt: skip
    factor = Fraction(1)
    if isinstance(run, Float):
        a, b = (v.astype(np.float64) for v in case.finite)
    else:
        a, b = (np.vectorize(exact, otypes=[object])(v) for v in case.finite)
    if isinstance(run, Mp):  # without an end to its exponents, unlike the bound's FP64
        (a, p), (b, q) = _near_one(a), _near_one(b)
        factor = p * q
    if isinstance(run, Mp) and run.bits > 53:
        # Where a bound counts an oracle in FP64, that is as large as one of 53 bits is; growth is
        # in proportion to the unit roundoff, at least.
        factor, run = factor * Fraction(2) ** (53 - run.bits), arithmetic("mp:53")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if algorithm.kind in ("omega", "winrs"):
            found = np.full(shapes[2], _of_segments(a, b, problem, algorithm, run))
        else:
            run = summed(run, algorithm)
            found = proven(a, b, problem, algorithm, run, direction=case.direction)
    if factor == 1:
        return found
    scaled = [v if v in (0, math.inf) else Fraction(v) * factor for v in found.reshape(-1)]
    result = np.empty(len(scaled), object)
    result[:] = scaled
    return result.reshape(found.shape)


def _near_one(values: np.ndarray) -> tuple[np.ndarray, Fraction]:
    """The values over a power of two, and that: the largest is between 1 and 4."""
    size = max(map(abs, values.reshape(-1)))
    power = size.numerator.bit_length() - size.denominator.bit_length() - 1 if size else 0
    return values / Fraction(2) ** power, Fraction(2) ** power


def _of_segments(
    a: np.ndarray, b: np.ndarray, problem: Problem, algorithm: Algorithm, run: Arithmetic
) -> float:
    """WinRS's bound, one for all outputs: the largest gain times the magnitudes of all products.

    Buckets are added by Kahan's sum, phases plainly: four roundings each at most.
    """
    run, of = run.of_data(a.astype(float), b.astype(float)), programs_of(algorithm)
    depth = problem.batch * math.prod(problem.output)
    x, dy = (float(np.abs(v.astype(float)).max(initial=0.0)) for v in (a, b))
    if isinstance(run, Float) and max(x, dy) > run.storage.max:
        return math.inf
    transform = Units.of(run).transform.growth
    bound, added = 0.0, 0
    for phase in phases(problem):
        segments = partition(phase.problem, algorithm, run)
        added += len(segments)
        for tile in {segment.tile for segment in segments}:
            cost = Cost.of((tile,), depth, algorithm, run, None)
            rows = [
                max(float(sum(row)) for row in getattr(of(tile), name).path_weights()[0])
                for name in ("AT", "G", "BT")
            ]
            gain, scale = math.prod(rows), run.exponents(gains([of(tile)]))
            growth = cost.growth + cost.storage + 4 * (added + 4) * transform
            operands = math.ldexp(x * rows[2], scale[0]), math.ldexp(dy * rows[1], scale[1])
            if growth >= 1 or _overflow(run, depth * gain * x * dy, operands, sum(scale)):
                return math.inf
            floor = math.ldexp(cost.underflow(operands, False, scale), -sum(scale))
            floor += 4 * cost.units.transform.absolute  # of scaling back
            bound += math.expm1(growth) * depth * gain * x * dy + math.exp(growth) * 4 * floor
    return bound * (1 + 4 * added * math.expm1(transform))


def _overflow(run: Arithmetic, result: float, operands: tuple[float, float], scale: int) -> bool:
    """Whether a format may not hold a magnitude."""
    if not isinstance(run, Float):
        return False
    formats = (run.transform, run.accumulate)
    largest = 2 * max(result, math.ldexp(result, scale))
    least = min(fmt.max for fmt in (run.product, run.storage, run.filters or run.transform))
    return 2 * max(operands) > least or largest > min(fmt.max for fmt in formats)
