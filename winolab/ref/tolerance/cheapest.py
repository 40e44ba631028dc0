"""The cheapest algorithm whose error keeps to a tolerance, for the data at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from winolab.algorithm import Algorithm, Problem, direct
from winolab.arguments.tolerance import Tolerance, missed
from winolab.problem import NAMES
from winolab.ref.arithmetic.elements import native
from winolab.ref.arithmetic.formats import FORMAT_OF, Format
from winolab.ref.arithmetic.simulated import Arithmetic, Float
from winolab.ref.cost.count import cost
from winolab.ref.error.expected import expected
from winolab.ref.error.moments import CONSTANT, Moments
from winolab.ref.error.partial_sums import mean_size
from winolab.ref.error.roundings import Unit
from winolab.ref.kinds.registry import ENGINES
from winolab.ref.operands import COMPONENTS, arithmetic_of
from winolab.ref.tolerance.normwise import normwise, products

# A prediction counts as so many times itself: simulated errors are up to 18 % above it, where sums
# in FP32 of 16-bit products that it holds begin exactly and truncate up to 2.3 times it.
SURE, SURE_OF_EXACT = 1.2, 2.5
Data = tuple[Moments, Moments]
FINE = 16  # sizes an octave that are told apart: roundings depend on where in it sums lie
U11 = Moments(0.0, 1 / 3, roundoff=1 / 7, peak=1.0)  # of U[-1, 1]


def within(
    tolerance: Tolerance,
    problem: Problem,
    run: Arithmetic,
    direction: str,
    operands: tuple[np.ndarray | None, np.ndarray],
    result: np.dtype,
) -> Algorithm:
    """The cheapest algorithm within the tolerance for these operands, whose moments tell; a first
    one that is not known is taken to be uniform on [-1, 1].

    Of two complex ones, whose product is the difference of sums of twice its energy, errors are √2
    times those of the parts. Raises ValueError as ``cheapest``.
    """
    arrays = [array for array in operands if array is not None]
    if all(array.dtype.kind == "c" for array in arrays):
        if tolerance.kind != "predicted":
            raise ValueError(f"tolerance {tolerance} of complex arrays; expected a number")
        tolerance = replace(tolerance, most=tolerance.most / math.sqrt(2))
    stored = _stored(run, *(array.dtype for array in arrays))
    data = (U11 if operands[0] is None else _moments(operands[0]), _moments(operands[1]))
    format_ = FORMAT_OF.get(_component(result))
    try:
        return cheapest(tolerance, problem, run, direction, data, format_, stored)
    except ValueError:
        for name, array in zip(NAMES[direction], operands, strict=False):
            if array is None or _component(array.dtype) not in FORMAT_OF:
                continue
            if not np.isfinite(array).all():
                raise ValueError(
                    f"tolerance {tolerance}: {name} holds NaN or infinity, whose errors nothing "
                    "limits; expected finite numbers, or name an algorithm in its place"
                ) from None
        raise


def foreseen(
    tolerance: Tolerance,
    problem: Problem,
    precision: str | Arithmetic | None,
    direction: str,
    operands: np.dtype,
    result: np.dtype,
) -> Algorithm:
    """The same for operands of a dtype that are uniform on [-1, 1]; ``precision`` None follows
    these. Raises as ``cheapest``."""
    run = arithmetic_of(precision, np.empty(0, operands))
    stored = _stored(run, operands)
    format_ = FORMAT_OF.get(_component(result))
    return cheapest(tolerance, problem, run, direction, (U11, U11), format_, stored)


def _stored(run: Arithmetic, *dtypes: np.dtype) -> bool:
    """Whether the arithmetic's storage format holds numbers of these dtypes."""
    formats = [FORMAT_OF.get(_component(dtype)) for dtype in dtypes]
    return isinstance(run, Float) and all(
        f is not None and not Unit.of(run.storage, f).relative for f in formats
    )


def _component(dtype: np.dtype) -> np.dtype:
    """That of the real parts of complex numbers, in native byte order."""
    return COMPONENTS.get(native(dtype), native(dtype))


def _moments(array: np.ndarray) -> Moments:
    return Moments.measured(
        np.stack([np.real(array), np.imag(array)]) if array.dtype.kind == "c" else array
    )


def cheapest(
    tolerance: Tolerance,
    problem: Problem,
    run: Arithmetic,
    direction: str = "forward",
    data: Data = (U11, U11),
    result: Format | None = None,
    stored: bool = True,
) -> Algorithm:
    """The algorithm of the fewest FLOP whose error is within the tolerance, of the usual ones.

    ``data`` are the operands' moments, of which few digits count; ``result`` is the format that
    results are rounded to, if they are; ``stored``: the operands are numbers of the arithmetic's
    storage format. Raises ValueError that says the least that can be had.
    """
    key = tuple(_coarse(m) for m in data)
    return _cheapest(tolerance, problem, run, direction, (key[0], key[1]), result, stored)


@lru_cache(maxsize=1024)
def _cheapest(
    tolerance: Tolerance,
    problem: Problem,
    run: Arithmetic,
    direction: str,
    data: Data,
    result: Format | None,
    stored: bool,
) -> Algorithm:
    least, best = math.inf, "no algorithm"
    for algorithm in usual(problem, direction):
        try:
            error = incurred(
                tolerance.kind, problem, algorithm, run, direction, data, result, stored
            )
        except ValueError:  # in this arithmetic, or for a kind of error, there is none
            continue
        if error <= tolerance.most:
            return algorithm
        if error < least:
            least, best = error, str(algorithm)
    raise missed(tolerance, least, run.name, best)


def usual(problem: Problem, direction: str) -> Iterator[Algorithm]:
    """The usual algorithms of every kind that serve the problem, by FLOP, the fewest first."""
    found = [a for engine in ENGINES.values() for a in engine.usual(problem, direction)]
    yield from sorted(found, key=lambda a: cost(problem, a, direction).flops)


def incurred(
    kind: str,
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    direction: str,
    data: Data = (U11, U11),
    result: Format | None = None,
    stored: bool = True,
) -> float:
    """The error that a tolerance of that ``kind`` limits; arguments are those of ``cheapest``."""
    unit = floor = 0.0
    count = products(problem, direction)
    if result and isinstance(run, Float) and result.precision < run.transform.precision:
        unit, floor = result.unit_roundoff, result.underflow
    if kind == "proven":
        peaks = data[0].largest, data[1].largest
        if not math.isfinite(max(peaks)):
            return math.inf
        limit = normwise(problem, algorithm, run, direction=direction, peaks=peaks, stored=stored)
        largest = count * math.prod(peaks)
        return limit * (1 + unit) + unit + (floor / largest if largest else 0.0)
    if kind == "componentwise" and algorithm.kind != "direct":
        return math.inf
    rms = expected(*data, problem, algorithm, run, direction=direction).relative_rms
    if kind == "direct":
        plain = expected(*data, problem, direct(), run, direction=direction).relative_rms
        return math.hypot(rms, CONSTANT**0.5 * unit) / (
            math.hypot(plain, CONSTANT**0.5 * unit) or 1
        )
    rounded = CONSTANT * unit**2 + lost(floor, mean_square(count, data))
    if not stored and isinstance(run, Float):
        rounded += run.storage.unit_roundoff**2 * sum(m.roundoff for m in data)
    error = math.sqrt((sure(algorithm, run) * rms) ** 2 + SURE**2 * rounded)
    return error * own_size(count, data) if kind != "predicted" else error


def lost(floor: float, square: float) -> float:
    """Relative variance of rounding results of that mean square to numbers 2 ``floor`` apart: all
    of it at most, where they vanish."""
    return min(1.0, floor**2 / (3 * square)) if square > 0 else 0.0


def sure(algorithm: Algorithm, run: Arithmetic) -> float:
    """How many times its prediction an algorithm's error may be, but for what rounds its result."""
    if algorithm.kind != "direct" or not isinstance(run, Float):
        return SURE
    held = Unit.of(run.product, run.storage).relative == 0
    exact = held and 2 * run.product.precision <= run.accumulate.precision
    return SURE_OF_EXACT if exact else SURE


def own_size(count: int, data: Data) -> float:
    """RMS of a result over its mean Σ|a||b|, of ``count`` products."""
    sizes = (float(mean_size(np.array(abs(m.mean)), np.array(m.variance**0.5))) for m in data)
    total = count * math.prod(sizes)
    return math.sqrt(mean_square(count, data)) / total if total else 0.0


def mean_square(count: int, data: Data) -> float:
    """E y² of a result y of ``count`` products."""
    a, b = data
    each = a.variance * b.variance + a.variance * b.mean**2 + b.variance * a.mean**2
    return count * each + (count * a.mean * b.mean) ** 2


def _coarse(m: Moments) -> Moments:
    """The moments by two digits, the peak rounded up: equal for most data of a layer."""
    size = math.sqrt(m.mean**2 + m.variance)
    if not size or not math.isfinite(size):
        return m
    unit = 2.0 ** (math.ceil(FINE * math.log2(size)) / FINE)
    mean = round(m.mean / unit, 2) * unit
    variance = max(1 - (mean / unit) ** 2, 0.0) * unit**2
    power = math.ceil(FINE * math.log2(m.peak)) / FINE if m.peak else -math.inf
    return Moments(mean, variance, round(m.zeros, 2), round(m.roundoff, 2), 2.0**power)
