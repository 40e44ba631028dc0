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
largest magnitudes met in place of each output's own. Sums of numbers of a format do not underflow
in it (Hauser 1996), sums of stored data that the transform format does not hold do. FP64 has no
half of its own η, so all of it counts; products with it are rounded up.

**Scaling** by powers of two moves underflow alone: what it adds is found among the scaled numbers.

**Overflow.** Where a magnitude times exp(L) exceeds a format's largest number there is no bound.

**FP64.** M is itself computed in FP64, so it is multiplied by exp(L) with u = 2^-53, after what
underflow took from it is added; an oracle of direct summation in FP64 is off by at most γ_k M + kη,
k its products, which is added. Numbers of more than FP64's bits count as an oracle's do.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Problem, Tile, parse_algorithm
from winolab.ref.algorithms import sample as sampling
from winolab.ref.algorithms import winograd
from winolab.ref.algorithms.engine import gains
from winolab.ref.algorithms.winograd import ProgramsOf
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import Arithmetic, Exact, Float, arithmetic
from winolab.ref.arithmetic.split import halves
from winolab.ref.error.roundings import Cost, Units, depth_of, ldexp, part, tiling

FP64 = FORMATS["fp64"]

RUNS = {
    "forward": winograd.forward,
    "backward_data": winograd.backward_data,
    "backward_filter": winograd.backward_filter,
}


@np.errstate(all="ignore")
def bound(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: str | Algorithm,
    run: str | Arithmetic,
    *,
    direction: str = "forward",
    programs: ProgramsOf | None = None,
    sample: sampling.Sample | None = None,
    magnitude: Magnitude | None = None,
) -> NDArray[np.float64]:
    """Bound of |computed − exact| for each output of winograd.forward or of a gradient.

    a and b are that function's first two arguments (x and w; dy and w; x and dy), ``programs`` its
    last, ``run`` the arithmetic. A new ``magnitude`` may compute it otherwise than on this CPU.
    With a ``sample`` (forward only) the bound is that of
    sample.forward's outputs. Infinity where nothing can be proven: K u beyond 1, a possible
    overflow, NaN or infinity in the data. Exact arithmetic has the bound 0.

    Raises ValueError for an unknown direction, an algorithm that is not tiled in it or a sampled
    gradient.
    """
    algorithm, run = parse_algorithm(algorithm), arithmetic(run)
    layer, boxes = tiling(problem, algorithm, direction)
    if sample is not None and direction != "forward":
        raise ValueError(f"direction {direction!r} with a sample; only forward has samples")
    magnitude = magnitude or Magnitude()
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
    growth = floor = wide = under = oracle = 0.0
    run = run.of_data(a, b)
    scales, added = set(), costing.pieces - 1
    for tiles, depth in kinds:
        cost, own = (costing.cost(tiles, depth, r) for r in (run, fp64))
        growth = max(growth, cost.growth + (0.0 if stored else cost.storage))
        scale = run.exponents(gains([costing.of(tile) for tile in tiles]))
        scales.add(scale)
        operands = _scaled(magnitude.operands, scale)
        least = ldexp(cost.underflow(operands, stored, scale), -sum(scale))
        floor = max(floor, least + (4 * cost.units.transform.absolute if any(scale) else 0.0))
        wide = max(wide, own.roundings)
        under = max(under, own.underflow(magnitude.operands, True))
        oracle = max(oracle, depth * math.prod(tile.r for tile in tiles) + 4)
    growth += added * Units.of(run).transform.growth
    wide += added * FP64.unit_roundoff
    floor, oracle, under = (costing.pieces * v for v in (floor, oracle, under))
    if growth >= 1 or any(magnitude.overflows(run, math.exp(growth), s) for s in scales):
        return np.full(size.shape, np.inf)
    with np.errstate(all="ignore"):
        relative = math.expm1(growth) + oracle * FP64.unit_roundoff
        total = relative * (size + under) + math.exp(growth) * floor
        total = math.exp(wide) * total + (oracle + 4) * FP64.underflow
    return np.where(np.isnan(total), np.inf, total)


def _scaled(sizes: tuple[float, float], scale: tuple[int, int]) -> tuple[float, float]:
    return ldexp(sizes[0], scale[0]), ldexp(sizes[1], scale[1])


def _is_stored(x: NDArray[Any], run: Arithmetic) -> bool:
    if isinstance(run, Float) and run.storage.precision >= 24 and x.dtype == np.float32:
        return True
    return np.array_equal(run.to_float64(run.asarray(x)), x)


@dataclass(eq=False)
class Magnitude(Arithmetic):
    """FP64 run of an algorithm on absolute values that keeps the largest magnitudes it met.

    Of what is ``stored``, made by the input's ``transformed``, multiplied as ``operands``,
    ``summed``, and made of sums (``results``); the filter's transform has a Magnitude of its own.
    """

    stored: float = 0.0
    transformed: float = 0.0
    operands: tuple[float, float] = (0.0, 0.0)
    summed: float = 0.0
    results: float = 0.0
    behind: bool = False  # the products, or before them

    @cached_property
    def of_filters(self) -> Magnitude:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Magnitude()

    @property
    def name(self) -> str:
        return "magnitude"

    def asarray(self, x: Any) -> NDArray[np.float64]:
        y = np.abs(FP64.nearest(x))
        self.stored, self.behind = max(self.stored, _peak(y)), False
        return y

    def constant(self, q: Fraction | int) -> np.float64:
        return np.float64(abs(q))

    def to_float64(self, y: Any) -> NDArray[np.float64]:
        return np.abs(y)

    def _keep(self, y: Any) -> Any:
        if self.behind:
            self.results = max(self.results, _peak(y))
        else:
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
        self.summed, self.behind = max(self.summed, _peak(y)), True
        return y

    def overflows(self, run: Arithmetic, factor: float, scale: tuple[int, int]) -> bool:
        """Whether a magnitude times the factor may exceed what a format of the arithmetic holds.

        ``scale``: exponents of the powers of two by which the tensors are scaled; formats that do
        not hold these, and their results', hold nothing.
        """
        if not isinstance(run, Float):
            return False
        both, of_w, filters = sum(scale), self.of_filters, run.of_filters.transform
        made = max(self.summed, self.results)
        x, w = _scaled(self.operands, scale)
        peaks = [
            (self.stored, run.storage),
            (ldexp(self.transformed, scale[0]), run.transform),
            (ldexp(of_w.transformed, scale[1]), filters),
            (max(x, w), run.product if run.parts == 1 else part(run)),
            (ldexp(self.summed, both), run.accumulate),
            (ldexp(made, both), run.of_outputs.transform),
        ]
        if any(scale):
            sizes = (self.stored, of_w.stored)
            peaks += [(v, run.transform) for v in (made, *_scaled(sizes, scale))]
            if run.filters:
                peaks.append((ldexp(of_w.stored, scale[1]), run.storage))
        powers = [Fraction(2) ** e for e in (*scale, *halves(both))] if any(scale) else []
        held = all(run.transform.round_fraction(q) == q for q in powers)
        return not (held and all(peak * factor <= fmt.max for peak, fmt in peaks))


def _peak(y: Any) -> float:
    return float(np.max(y, initial=0.0))
