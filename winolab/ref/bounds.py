"""A proven a-priori bound of the rounding error of every output, for all simulated arithmetics.

**Derivation.** Rounding to nearest in a format of precision p obeys fl(v) = v (1 + δ) + ε with
|δ| ≤ u = 2^-p and |ε| ≤ η/2, η the smallest subnormal; truncation has 2u and η (Higham 2002,
Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 2.1 and 2.2). Expand an output of
the computed algorithm as a sum of products, one for each path from an input through registers of
the three programs and the accumulation. A path carries its constants, one element of x and one of
w, and a factor (1 + δ) for each rounding on it, so that with k_f roundings in format f at most

    |ŷ − y| ≤ (∏_f (1 + u_f)^k_f − 1) · M + underflow,   M = P_AT Σ_k (P_G |w|) ∘ (P_BT |x|),

where P is the sum over paths of |constants|: |AT|, |G|, |BT| only where no shared terms cancel.
M comes from running the programs themselves on |x|, |w| with every subtraction made an addition.
ku ≤ L = Σ k_f log(1 + u_f), and expm1(L) ≤ ku/(1 − ku) = γ_k (Higham, lemma 3.1); where L ≥ 1
there is no bound. L adds up, on the longest path,

- storage of x and of w, unless the data are already numbers of that format;
- every operation of G, BT and AT (an addition of two registers, a fused multiply-add: one; a
  product by a power of two: none), and for each constant log(1 + |fl(q) − q|/|q|);
- operands rounded to the product format (unless they are data stored in it), the result from the
  accumulate to the transform format;
- where the programs compute other matrices than the algorithm's (constants typed as decimals), the
  largest ratio of the difference to P;
- the accumulation of K products (`roundings.accumulation_unit`).

**Underflow.** η/2 of each product enters a linear recurrence over the same programs, with the
largest magnitudes met in place of each output's own.

**Scaling** by powers of two moves underflow alone: what it adds is found among the scaled numbers.

**Overflow.** Where a magnitude times exp(L) exceeds a format's largest number there is no bound.

**FP64.** M is itself computed in FP64, so it is multiplied by exp(L) with u = 2^-53; an oracle of
direct summation in FP64 is off by at most γ_k M, k its products, which is added.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.nouns import Algorithm, Problem, Tile
from winolab.ref import sample as sampling
from winolab.ref import winograd
from winolab.ref.arithmetic import Arithmetic, Exact, Float, arithmetic
from winolab.ref.formats import FORMATS
from winolab.ref.roundings import Cost, Units, depth_of, tiling
from winolab.ref.tiles import gains
from winolab.ref.winograd import ProgramsOf

# What scaling the result back, in two products, may lose below FP32's normal numbers.
LEAST = 2 * FORMATS["fp32"].smallest_subnormal

RUNS = {
    "forward": winograd.forward,
    "backward_data": winograd.backward_data,
    "backward_filter": winograd.backward_filter,
}


def bound(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: Algorithm,
    run: Arithmetic,
    *,
    direction: str = "forward",
    programs: ProgramsOf | None = None,
    sample: sampling.Sample | None = None,
) -> NDArray[np.float64]:
    """Bound of |computed − exact| for each output of winograd.forward or of a gradient.

    a and b are that function's first two arguments (x and w; dy and w; x and dy), ``programs`` its
    last, ``run`` the arithmetic. With a ``sample`` (forward only) the bound is that of
    sample.forward's outputs. Infinity where nothing can be proven: K u beyond 1, a possible
    overflow, NaN or infinity in the data. Exact arithmetic has the bound 0.

    Raises ValueError for an unknown direction, an algorithm that is not tiled in it or a sampled
    gradient.
    """
    layer, boxes = tiling(problem, algorithm, direction)
    if sample is not None and direction != "forward":
        raise ValueError(f"direction {direction!r} with a sample: only forward has samples.")
    magnitude = Magnitude()
    args = (np.abs(a), np.abs(b), problem, algorithm, magnitude)
    with np.errstate(all="ignore"):
        if sample is None:
            size = np.abs(RUNS[direction](*args, programs))
        else:
            size = np.abs(sampling.forward(*args, sample, programs)[0])
    kinds = {(tuple(s.tile for s in x.segments), depth_of(layer, x)) for x in boxes}
    costing = Costing(algorithm, programs or winograd.programs_of(algorithm), programs)
    return assembled(a, b, run, size, magnitude, kinds, costing)


@dataclass(frozen=True)
class Costing:
    """The programs that ran, and, beside them, what their matrices and their sums are.

    ``typed``: programs whose constants may differ from the algorithm's; ``exact``: the matrices
    are the programs' own; ``pieces``: how many such results are added up, in the transform format.
    """

    algorithm: Algorithm
    of: ProgramsOf
    typed: ProgramsOf | None = None
    exact: bool = False
    pieces: int = 1

    def cost(self, tiles: tuple[Tile, ...], depth: int, run: Arithmetic) -> Cost:
        programs = self.of if self.exact else self.typed
        return Cost.of(tiles, depth, self.algorithm, run, programs, exact=self.exact)


def assembled(
    a: NDArray[Any],
    b: NDArray[Any],
    run: Arithmetic,
    size: NDArray[np.float64],
    magnitude: Magnitude,
    kinds: Collection[tuple[tuple[Tile, ...], int]],
    costing: Costing,
) -> NDArray[np.float64]:
    """The bound of outputs of magnitudes ``size``, computed in ``magnitude`` from |a| and |b|.

    ``kinds``: tiles of every dimension, and the products that one of their sums has.
    """
    if isinstance(run, Exact):
        return np.zeros(size.shape)
    stored = all(_is_stored(v, run) for v in (a, b))
    fp64 = arithmetic("fp64,fused=no")
    growth = floor = wide = oracle = 0.0
    run = run.of_data(a, b)
    scales, added = set(), costing.pieces - 1
    for tiles, depth in kinds:
        cost = costing.cost(tiles, depth, run)
        growth = max(growth, cost.growth + (0.0 if stored else cost.storage))
        scale = run.exponents(gains([costing.of(tile) for tile in tiles]))
        scales.add(scale)
        operands = [math.ldexp(v, e) for v, e in zip(magnitude.operands, scale, strict=True)]
        least = math.ldexp(cost.underflow((operands[0], operands[1]), stored), -sum(scale))
        floor = max(floor, least + (LEAST if any(scale) else 0.0))
        wide = max(wide, costing.cost(tiles, depth, fp64).roundings)
        products = depth * math.prod(tile.r for tile in tiles)
        oracle = max(oracle, (products + 4) * FORMATS["fp64"].unit_roundoff)
    growth += added * Units.of(run).transform.growth
    wide += added * FORMATS["fp64"].unit_roundoff
    floor, oracle = costing.pieces * floor, costing.pieces * oracle
    if growth >= 1 or any(magnitude.overflows(run, math.exp(growth), s) for s in scales):
        return np.full(size.shape, np.inf)
    with np.errstate(all="ignore"):
        total = math.exp(wide) * ((math.expm1(growth) + oracle) * size + math.exp(growth) * floor)
    return np.where(np.isnan(total), np.inf, total)


def _is_stored(x: NDArray[Any], run: Arithmetic) -> bool:
    if isinstance(run, Float) and run.storage.precision >= 24 and x.dtype == np.float32:
        return True
    return np.array_equal(run.to_float64(run.asarray(x)), x)


@dataclass(eq=False)
class Magnitude(Arithmetic):
    """FP64 run of an algorithm on absolute values that keeps the largest magnitudes it met."""

    stored: float = 0.0
    transformed: float = 0.0
    operands: tuple[float, float] = (0.0, 0.0)
    summed: float = 0.0

    @property
    def name(self) -> str:
        return "magnitude"

    def asarray(self, x: Any) -> NDArray[np.float64]:
        y = np.abs(np.asarray(x, np.float64))
        self.stored = max(self.stored, _peak(y))
        return y

    def constant(self, q: Fraction | int) -> np.float64:
        return np.float64(abs(q))

    def to_float64(self, y: Any) -> NDArray[np.float64]:
        return np.abs(y)

    def _keep(self, y: Any) -> Any:
        self.transformed = max(self.transformed, _peak(y))
        return y

    def add(self, a: Any, b: Any) -> Any:
        return self._keep(np.abs(a) + np.abs(b))

    def sub(self, a: Any, b: Any) -> Any:
        return self.add(a, b)

    def mul(self, a: Any, b: Any) -> Any:
        return self._keep(np.abs(a * b))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self._keep(np.abs(a * b) + np.abs(c))

    def matmul(self, a: Any, b: Any) -> NDArray[np.float64]:
        a, b = np.abs(a), np.abs(b)
        y = np.matmul(a, b)
        self.operands = max(self.operands[0], _peak(a)), max(self.operands[1], _peak(b))
        self.summed = max(self.summed, _peak(y))
        return y

    def overflows(self, run: Arithmetic, factor: float, scale: tuple[int, int]) -> bool:
        """Whether a magnitude times the factor may exceed what a format of the arithmetic holds.

        ``scale``: exponents of the powers of two by which the tensors are scaled.
        """
        if not isinstance(run, Float):
            return False
        operands = [math.ldexp(v, e) for v, e in zip(self.operands, scale, strict=True)]
        results = max(self.transformed, self.summed)
        peaks = (
            (self.stored, run.storage),
            (max(results, math.ldexp(results, sum(scale))), run.transform),
            (max(operands), run.product),
            (math.ldexp(self.summed, sum(scale)), run.accumulate),
        )
        return not all(peak * factor <= fmt.max for peak, fmt in peaks)


def _peak(y: Any) -> float:
    return float(np.max(y, initial=0.0))
