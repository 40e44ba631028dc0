"""Where an arithmetic rounds and how much: what bounds and predictions count.

One rounding is a Unit; Units says which an arithmetic has; Stage follows them through a program,
Cost through a whole tiled algorithm. winolab.ref.error.bounds has the theory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from winolab.algorithm import Algorithm, Problem, Tile
from winolab.ref.algebra.program import Program, is_power_of_two
from winolab.ref.algebra.transforms import transforms
from winolab.ref.algorithms import winograd
from winolab.ref.algorithms.engine import Region
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winograd import ProgramsOf, programs_of
from winolab.ref.arithmetic import split
from winolab.ref.arithmetic.accumulate import pieces
from winolab.ref.arithmetic.formats import FORMATS, Format
from winolab.ref.arithmetic.simulated import Arithmetic, Float, Mp

FP32 = FORMATS["fp32"]
TWICE = math.log1p(FORMATS["fp64"].unit_roundoff)  # simulated by way of FP64
DIRECTIONS = ("forward", "backward_data", "backward_filter")


def known(direction: str) -> str:
    """The direction. Raises ValueError for an unknown one."""
    if direction not in DIRECTIONS:
        raise ValueError(f"direction {direction!r}; expected one of {', '.join(DIRECTIONS)}")
    return direction


def tiling(
    problem: Problem, algorithm: Algorithm, direction: str
) -> tuple[Problem, tuple[Region, ...]]:
    """The forward problem that a direction is computed as, for one group, and its regions.

    Raises ValueError for an unknown direction, or an algorithm that is not tiled in it.
    """
    if known(direction) == "backward_filter":
        if algorithm.kind not in ("direct", "winograd"):
            raise ValueError(
                f"{algorithm} is not a tiled algorithm in backward_filter; use direct or winograd, "
                "or winolab.ref.error.proven for the bounds of dwm and fft"
            )
        return winograd.gradient_regions(problem, algorithm)
    layer = winograd.data_adjoint(problem) if direction == "backward_data" else problem
    boxes = winograd.regions(layer, algorithm)
    groups = layer.groups
    group = replace(
        layer,
        in_channels=layer.in_channels // groups,
        out_channels=layer.out_channels // groups,
        groups=1,
    )
    return group, boxes


def depth_of(problem: Problem, region: Region) -> int:
    """Products that an accumulator sums: pieces of the filter times input channels."""
    return math.prod(region.pieces(problem)) * problem.in_channels


@dataclass(frozen=True)
class Unit:
    """Relative and absolute size of one rounding; all 0 where nothing is rounded."""

    relative: float = 0.0
    absolute: float = 0.0
    aligned: float = 0.0  # absolute too, of an operand of 1

    @property
    def growth(self) -> float:
        return math.log1p(self.relative)

    @classmethod
    def of(cls, fmt: Format, *held: Format) -> Unit:
        """Rounding to fmt of numbers of the formats `held`: none if it holds all of them."""
        if held and all(
            f.precision <= fmt.precision and f.emin >= fmt.emin and f.max <= fmt.max for f in held
        ):
            return cls()
        return cls(fmt.unit_roundoff, fmt.underflow)


@dataclass(frozen=True)
class Units:
    """Where an arithmetic rounds, and how much; ``held``: the transform format holds the data."""

    storage: Unit
    transform: Unit
    product: Unit
    copied: Unit  # as product, of data that no transform has touched
    result: Unit
    fused: bool
    sums: Callable[[int], Unit] = field(compare=False)
    constant: Callable[[Fraction], float] = field(compare=False)
    held: bool = True

    @classmethod
    def of(cls, run: Arithmetic) -> Units:
        """Raises ValueError for scales of the data, TypeError for what states no rounding."""
        if isinstance(run, Mp):
            unit = Unit(2.0**-run.bits)
            return cls(
                unit, unit, Unit(), Unit(), Unit(), True, lambda k: unit, lambda q: unit.relative
            )
        if not isinstance(run, Float):
            raise run.unforeseen()

        def constant(q: Fraction) -> float:
            """Relative error of the constant, rounded once."""
            try:
                return float(abs(rounded_constant(run, q) / q - 1))
            except (OverflowError, ValueError):  # infinite, or NaN in its place
                return math.inf

        return cls(
            Unit.of(run.storage),
            Unit.of(run.transform),
            operand_unit(run, run.storage, run.transform),
            operand_unit(run, run.storage),
            Unit.of(run.of_sums, run.accumulate),
            run.fused,
            lambda k: accumulation_unit(run, k),
            constant,
            Unit.of(run.transform, run.storage) == Unit(),
        )


def rounded_constant(run: Arithmetic, q: Fraction) -> Fraction:
    """q as the transform format holds it. Raises OverflowError or ValueError where it does not."""
    return Fraction(run.transform.round_fraction(q)) if isinstance(run, Float) else q


def operand_unit(run: Float, *held: Format) -> Unit:
    """Rounding an operand of these formats to the product format, or splitting it into parts,
    of which the Tensor Core cuts off what TF32 does not hold."""
    if run.parts == 1:
        return Unit.of(run.product, *held)
    precision = max(fmt.precision for fmt in held)
    lost = run.parts * FP32.underflow if precision > FP32.precision else 0.0
    under = part(run).underflow * (2 if part(run).name == "tf32" else 1)
    return Unit(split.left(part(run), run.parts, precision), under + lost)


def part(run: Float) -> Format:
    """The format of the parts of an operand, which pass through FP32."""
    return run.product if run.product.precision <= FP32.precision else FP32


def accumulation_unit(run: Float, k: int) -> Unit:
    """Bound of the error of a sum of k products, relative to the sum of their magnitudes.

    With u and η of the accumulate format, k roundings in sequence or in any order (Higham, section
    3.1); two_level of block b: min(b, k) + ⌈k/b⌉ − 1; pairwise 1 + ⌈log2 k⌉ (4.2); `kahan_factor`.
    tensor_core with chunk c and g extra bits: aligning to the largest magnitude loses less than
    2^(1−g) u of it for each of the c addends that are not the largest (c + 1 where products have
    more bits than are kept), then one rounding, for each of ⌈k/c⌉ chunks, by η 2^-g at least. A
    subnormal factor counts as 2^emin there, and its product as 2^emin of the other at most: (c + 1)
    2^(1−g) u of that a chunk, ``aligned``. With intervals, a product goes through the chunks of the
    longest at most, then through the additions of all that follow, of u each.
    Operands of n parts of unit roundoff v bring n(n + 1)/2 products, whose magnitudes sum to at
    most (1 + n v)² of the product's, and leave products out (`split.dropped`).
    """
    if k == 0:
        return Unit()
    if run.parts > 1:
        n, v = run.parts, part(run).unit_roundoff
        group = max(1, run.accumulation.block)
        unit = _sum_unit(run, -(-k // group) * group * split.products(n))
        grown = (1 + n * v) ** 2 * unit.relative
        return replace(unit, relative=grown + split.dropped(part(run), n))
    return _sum_unit(run, k)


def _sum_unit(run: Float, k: int) -> Unit:
    """`accumulation_unit` of k products as they are."""
    order, fmt = run.accumulation, run.accumulate
    u, eta = fmt.unit_roundoff, fmt.smallest_subnormal
    if order.kind == "tensor_core":
        c, fine = min(order.block, k), 2.0**-order.extra_bits
        whole = 2 * run.product.precision <= fmt.precision + order.extra_bits
        aligned = (c if whole else c + 1) * 2 * u * fine
        rounded = 2 * u if order.rounding == "truncate" else u
        chunks = -(-k // order.block)
        lengths = [len(p) for p in pieces(chunks, [i // order.block for i in order.intervals])]
        growth = max(lengths) * (math.log1p(aligned) + math.log1p(rounded))
        growth += (len(lengths) - 1) * math.log1p(u)
        absolute, tiny = chunks * ((c + 1) * fine + 1) * eta, 2.0**run.product.emin
        reached = chunks * (c + 1) * 2 * u * fine * tiny
        return Unit(math.expm1(growth), absolute + above(reached, tiny), reached)
    if order.kind == "kahan":
        product = 0.0 if run.fused else u
        return Unit((1 + kahan_factor(k, u)) * (1 + product) - 1, k * fmt.underflow)
    roundings = {
        "sequential": k,
        "unspecified": k,
        "two_level": min(order.block, k) + -(-k // max(1, order.block)) - 1,
        "pairwise": 1 + (k - 1).bit_length(),
    }[order.kind]
    return Unit(math.expm1(roundings * math.log1p(u)), k * fmt.underflow)


def kahan_factor(k: int, u: float) -> float:
    """κ with |computed − Σp| ≤ κ Σ|p| for compensated summation of k products.

    Step j rounds the term y = (p − c)(1 + δ), the sum s' = s + y + e, |e| ≤ u|s'|, and the
    correction c' = (D(1 + δ) − y)(1 + δ), D = s' − s = y + e, so that s' − c' − (s − c) − p is at
    most u(|p| + |c|) + u|D| + u(|e| + u|D|). With P = Σ|p|, |s| ≤ m P, |c| ≤ C P, the sum over j,
    plus the last c, is F(m) P with m ≤ 1 + F; the least fixed point is κ = 4u + O(k u²), found by
    iterating from 0, or infinity (Higham 2002, section 4.3: 2u + O(k u²)).
    """
    factor = c = 0.0
    for _ in range(100):
        m = 1 + factor
        d = (1 + u) * (1 + c) + u * m
        c = (1 + u) * u * (m + d)
        terms = 1 + k * c  # Σ (|p| + |c|) / P
        moves = (1 + u) * terms + k * u * m  # Σ |D| / P
        new = c + u * terms + u * (1 + u) * moves + k * u * u * m
        if new > 1:
            return math.inf
        if new <= factor * (1 + 1e-12):
            return new * (1 + 1e-9)
        factor = new
    return math.inf


def ldexp(x: float, exponent: int) -> float:
    """x · 2^exponent, infinite where FP64 does not hold it."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(x, exponent))


def above(a: float, b: float) -> float:
    """a · b at least, where FP64 itself underflows too."""
    return math.nextafter(a * b, math.inf) if a and b else 0.0


@dataclass(frozen=True)
class Stage:
    """A program's part: growth (log) and row sum at most, and what underflow adds to an output."""

    growth: float
    typed: float
    gain: float
    floor: float
    copies: bool  # its outputs are inputs

    @classmethod
    def of(
        cls,
        program: Program,
        matrix: Sequence[Sequence[Fraction]],
        units: Units,
        *,
        held: bool = True,
    ) -> Stage:
        """Inputs that are no numbers of the transform format (``held``) underflow in sums, and
        round in products by powers of two."""
        unit, eta = units.transform, units.transform.absolute
        growth, floor = [0.0] * program.inputs, [0.0] * program.inputs
        for op in program.ops:
            q = float(abs(op.constant))
            fresh, also = (not held and r is not None and r < program.inputs for r in (op.a, op.b))
            free = is_power_of_two(op.constant) and not fresh
            g, f = growth[op.a], above(floor[op.a], q)
            if op.kind not in ("add", "sub"):
                g += math.log1p(units.constant(op.constant))
                f += eta
            elif fresh or also:
                f += eta
            if op.b is not None:
                if op.kind in ("fma", "fms") and not units.fused:
                    g += 0 if free else unit.growth
                    f += eta
                g, f = max(g, growth[op.b]), f + floor[op.b]
            g += TWICE if fresh or also else 0.0
            growth.append(g if op.kind == "mul" and free else g + unit.growth)
            floor.append(f)
        used = [reg for sign, reg in program.outputs if sign]
        weights = program.path_weights()[0]
        typed = 0.0
        for row, exact, weight in zip(program.exact(), matrix, weights, strict=True):
            for p, q, w in zip(row, exact, weight, strict=True):
                if p != q:
                    typed = max(typed, float(abs(p - q) / w) if w else math.inf)
        return cls(
            max((growth[reg] for reg in used), default=0.0),
            math.log1p(typed),
            max(float(sum(row)) for row in weights),
            max((floor[reg] for reg in used), default=0.0),
            not program.ops,
        )


@dataclass(frozen=True)
class Cost:
    """Everything that grows the error of the outputs of one kind of tile."""

    storage: float
    roundings: float
    typed: float
    depth: int
    units: Units
    operands: tuple[Unit, ...]  # rounded filters and inputs, as they are multiplied
    stages: tuple[tuple[Stage, ...], ...]  # AT, G, BT; per dimension
    scaling: Unit | None  # what multiplying a number by its power of two rounds

    @property
    def growth(self) -> float:
        return self.roundings + self.typed

    @classmethod
    def of(
        cls,
        tiles: Sequence[Tile],
        depth: int,
        algorithm: Algorithm,
        run: Arithmetic,
        programs: ProgramsOf | None,
        *,
        exact: bool = False,
    ) -> Cost:
        """``exact``: the programs compute the very matrices that they are made of."""
        units, of_g, of_y = (Units.of(r) for r in (run, run.of_filters, run.of_outputs))
        of = programs or programs_of(algorithm)
        scaling = None
        if isinstance(run, Float) and run.scale:
            scaling = Unit(Unit.of(run.transform, run.storage).relative, run.transform.underflow)
        stages = tuple(
            tuple(
                Stage.of(
                    getattr(of(tile), name),
                    getattr(of(tile), name).exact() if exact else matrix_of(algorithm, tile, name),
                    rounded,
                    held=name == "AT" or rounded.held,
                )
                for tile in tiles
            )
            for name, rounded in (("AT", of_y), ("G", of_g), ("BT", units))
        )
        roundings = sum(s.growth for part in stages for s in part)
        operands = tuple(
            unit.copied if scaling is None and all(s.copies for s in part) else unit.product
            for part, unit in zip(stages[1:], (of_g, units), strict=True)
        )
        roundings += sum(unit.growth for unit in operands)
        roundings += 2 * scaling.growth if scaling else 0.0
        roundings += units.sums(depth).growth + units.result.growth
        typed = sum(s.typed for part in stages for s in part)
        return cls(
            2 * units.storage.growth, roundings, typed, depth, units, operands, stages, scaling
        )

    def underflow(
        self, operands: tuple[float, float], stored: bool, scale: tuple[int, int] = (0, 0)
    ) -> float:
        """What underflow adds to an output, scaled by 2^Σ``scale``, at most, before growth.

        ``operands``: the largest magnitudes of transformed, scaled inputs and filters.
        """
        at, g, bt = self.stages

        def through(stages: Sequence[Stage], floor: float) -> float:
            for stage in stages:
                floor = above(stage.gain, floor) + stage.floor
            return floor

        def start(exponent: int) -> float:
            unit = self.units.storage.absolute
            once = 0.0 if stored else math.nextafter(ldexp(unit, exponent), math.inf)
            # filters of another format are stored again
            return once + (unit + self.scaling.absolute if self.scaling else 0.0)

        u, v = (
            through(stages, start(exponent)) + unit.absolute
            for stages, unit, exponent in zip((g, bt), self.operands, scale[::-1], strict=True)
        )
        left, right = operands
        m = above(self.depth, above(left, u) + above(right, v) + above(u, v))
        sums = self.units.sums(self.depth)
        m += sums.absolute + above(sums.aligned, max(operands)) + self.units.result.absolute
        return through(at, m)


def matrix_of(algorithm: Algorithm, tile: Tile, name: str) -> Sequence[Sequence[Fraction]]:
    """AT, G or BT of the algorithm's tile, exact."""
    if tile == DIRECT:
        return ((Fraction(1),),)
    exact = transforms(tile.n, tile.r, algorithm.points_of(tile), algorithm.scaling)
    return getattr(exact, name)
