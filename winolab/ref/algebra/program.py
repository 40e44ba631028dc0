"""A transform matrix as a straight-line program: what is proved, run, counted and printed.

Equal and opposite pairs of columns and of rows are computed once (the "transform simplification"
of Im2col-Winograd section 5.3 and WinRS section 5), terms shared up to sign and scale are found by
exact comparison, and multiplications by 0 and ±1 cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np

from winolab.ref.algebra.schedule import Op, Output, is_dyadic, rowwise, schedules
from winolab.ref.arithmetic.simulated import arithmetic


@dataclass(frozen=True)
class Counts:
    """Operations of a program; ``shifts`` are multiplications by powers of two, counted apart."""

    additions: int
    multiplications: int
    shifts: int
    fmas: int

    @property
    def instructions(self) -> int:
        """Floating-point instructions, an FMA being one (Lavin & Gray's count)."""
        return self.additions + self.multiplications + self.shifts + self.fmas


@dataclass(frozen=True)
class Program:
    """y = matrix · x as operations on registers: the inputs first, then one register per op.

    Op kinds: add a+b, sub a−b, mul q·a, fma q·a+b, fms q·a−b. An output is (sign, register), or
    (0, 0) for a zero row; signs are source modifiers, which cost nothing.
    """

    inputs: int
    ops: tuple[Op, ...]
    outputs: tuple[Output, ...]

    def exact(self) -> tuple[tuple[Fraction, ...], ...]:
        """The matrix that the program computes, found by running it on unit vectors, once."""
        return self._exact

    @cached_property
    def _exact(self) -> tuple[tuple[Fraction, ...], ...]:
        # by input, without zeros: most of the first registers' entries
        registers: list[dict[int, Fraction]] = [{i: Fraction(1)} for i in range(self.inputs)]
        for op in self.ops:
            q = op.constant
            made = {i: q * u for i, u in registers[op.a].items()} if q != 1 else {**registers[op.a]}
            if op.b is not None:
                for i, v in registers[op.b].items():
                    signed = v if op.sign > 0 else -v
                    made[i] = made[i] + signed if i in made else signed
            registers.append({i: v for i, v in made.items() if v})
        zero = Fraction(0)
        return tuple(
            tuple(sign * registers[reg].get(i, zero) if sign else zero for i in range(self.inputs))
            for sign, reg in self.outputs
        )

    def evaluate(self, x: np.ndarray, arithmetic, axis: int = -1) -> np.ndarray:
        """Run along ``axis`` of the carrier array ``x`` in the program's own order of operations.

        Returns the carrier array with the outputs along ``axis``. Raises ValueError where the axis
        does not have as many entries as the program has inputs.
        """
        registers: list[Any] = list(np.moveaxis(np.asarray(x), axis, 0))
        if len(registers) != self.inputs:
            raise ValueError(f"axis {axis} has {len(registers)} entries; expected {self.inputs}")
        run = arithmetic
        for op in self.ops:
            a = registers[op.a]
            b = registers[op.b or 0]
            if op.kind == "add":
                registers.append(run.add(a, b))
            elif op.kind == "sub":
                registers.append(run.sub(a, b))
            elif op.kind == "mul":
                registers.append(run.mul(run.constant(op.constant), a))
            else:
                c = b if op.kind == "fma" else -b
                registers.append(run.fma(run.constant(op.constant), a, c))
        first = np.asarray(registers[0])
        rows = [
            registers[reg] if sign > 0 else -registers[reg] if sign
            else np.full(first.shape, run.constant(Fraction(0)), first.dtype)
            for sign, reg in self.outputs
        ]  # fmt: skip
        return np.moveaxis(np.stack(rows), 0, axis)

    @cached_property
    def counts(self) -> Counts:
        def count(kinds, shift=None):
            return sum(
                op.kind in kinds and (shift is None or is_power_of_two(op.constant) == shift)
                for op in self.ops
            )

        return Counts(
            count(("add", "sub")),
            count(("mul",), False),
            count(("mul",), True),
            count(("fma", "fms")),
        )

    def path_weights(self) -> tuple[tuple[tuple[Fraction, ...], ...], tuple[int, ...]]:
        """Per output and input, Σ over paths of ∏|constants|, and the most roundings on a path.

        The weights bound |matrix| from above, strictly where shared terms cancel; first-order
        error analysis needs them and not |matrix|. A power-of-two product rounds nothing; a
        constant that binary floating point cannot hold counts as a rounding of its own.
        """
        return self._path_weights

    @cached_property
    def _path_weights(self) -> tuple[tuple[tuple[Fraction, ...], ...], tuple[int, ...]]:
        zero = (Fraction(0),) * self.inputs
        weights = [
            tuple(Fraction(int(i == j)) for j in range(self.inputs)) for i in range(self.inputs)
        ]
        depths = [0] * self.inputs
        for op in self.ops:
            q = abs(op.constant)
            b, depth_b = (zero, 0) if op.b is None else (weights[op.b], depths[op.b])
            weights.append(tuple(q * u + v for u, v in zip(weights[op.a], b, strict=True)))
            rounds = not (op.kind == "mul" and is_power_of_two(q))
            constant = not is_dyadic(q)
            depths.append(max(depths[op.a] + constant, depth_b) + rounds)
        return (
            tuple(weights[reg] if sign else zero for sign, reg in self.outputs),
            tuple(depths[reg] if sign else 0 for sign, reg in self.outputs),
        )

    def with_constants(self, change: Callable[[Fraction], Fraction]) -> Program:
        """The same program with every constant passed through ``change``, ±1 kept."""
        ops = tuple(
            op if op.kind in ("add", "sub") else Op(op.kind, op.a, op.b, change(op.constant))
            for op in self.ops
        )
        return Program(self.inputs, ops, self.outputs)

    def scaled(self, scale: Fraction) -> Program:
        """The program of scale · matrix, for a power of two; roundings as here, of scale · x.

        Constants take the scale along, so that few inputs are multiplied by it alone.
        """
        most = min(self.inputs, 3)  # more were never needed
        chosen = (c for n in range(most + 1) for c in combinations(range(self.inputs), n))
        found = [_Scaling(self, scale, frozenset(inputs)).program() for inputs in chosen]
        return min(*found, self._of_scaled(scale), key=lambda p: p.counts.instructions)

    def _of_scaled(self, scale: Fraction) -> Program:
        """The program behind products of every input with ``scale``."""
        first, n = [Op("mul", i, None, scale) for i in range(self.inputs)], self.inputs
        ops = (o._replace(a=o.a + n, b=None if o.b is None else o.b + n) for o in self.ops)
        return Program(n, (*first, *ops), tuple((sign, at + n) for sign, at in self.outputs))

    @property
    def bare(self) -> int:
        """Bits of the outputs that are an input, or its negative."""
        return sum(
            1 << i for i, (sign, register) in enumerate(self.outputs)
            if sign and register < self.inputs
        )  # fmt: skip

    def cuda(self, name: str, wide: bool = False) -> str:
        """A CUDA C++ device function ``name(x, y)`` for anything indexable; constants are FP32.

        ``wide``: everything is FP64.
        The intrinsics fix one rounding an operation, so that the compiler contracts nothing and
        the reference's FP32 run predicts every bit.
        """
        kind, letter, fma = ("double", "d", "__fma_rn") if wide else ("float", "f", "__fmaf_rn")
        calls = {
            "add": f"__{letter}add_rn({{a}}, {{b}})",
            "sub": f"__{letter}sub_rn({{a}}, {{b}})",
            "mul": f"__{letter}mul_rn({{q}}, {{a}})",
            "fma": f"{fma}({{q}}, {{a}}, {{b}})",
            "fms": f"{fma}({{q}}, {{a}}, -{{b}})",
        }
        constant = _wide if wide else _hexadecimal
        body = [f"  const {kind} {t} = {call};" for t, call in self._lines(calls, constant)]
        return _function(name, body, self._results("0.0f"))

    def cuda_pairs(self, name: str, precision: str) -> str:
        """The same of pairs of numbers in ``precision``, "fp16" or "bf16", which constants are
        rounded to: operations are pairs.cuh's."""
        calls = {
            "add": "pair_add({a}, {b})",
            "sub": "pair_sub({a}, {b})",
            "mul": "pair_mul({q}, {a})",
            "fma": "pair_fma({q}, {a}, {b})",
            "fms": "pair_fma({q}, {a}, -{b})",
        }
        constant = partial(_pair, precision)
        body = [f"  const auto {t} = {call};" for t, call in self._lines(calls, constant)]
        return _function(name, body, self._results("{0u}"))

    def python(self, name: str = "transform") -> str:
        """A Python function ``name(x)`` over anything that adds and multiplies with Fraction."""
        calls = {
            "add": "{a} + {b}",
            "sub": "{a} - {b}",
            "mul": "{q} * {a}",
            "fma": "{q} * {a} + {b}",
            "fms": "{q} * {a} - {b}",
        }
        lines = [f"    {t} = {call}" for t, call in self._lines(calls, repr)]
        results = ", ".join(self._results("0"))
        return "\n".join([f"def {name}(x):", *lines, f"    return [{results}]"])

    def _lines(self, calls: dict[str, str], constant: Callable[[Fraction], str]):
        for i, op in enumerate(self.ops):
            b = "" if op.b is None else self._name(op.b)
            q = "" if op.kind in ("add", "sub") else constant(op.constant)
            yield f"t{i}", calls[op.kind].format(a=self._name(op.a), b=b, q=q)

    def _results(self, zero: str) -> list[str]:
        return [
            zero if not sign else ("-" if sign < 0 else "") + self._name(reg)
            for sign, reg in self.outputs
        ]

    def _name(self, register: int) -> str:
        return f"x[{register}]" if register < self.inputs else f"t{register - self.inputs}"


class _Scaling:
    """A program's ops, each where it is needed: as it is, or times a power of two."""

    def __init__(self, source: Program, scale: Fraction, preferred: frozenset[int]) -> None:
        self.source, self.scale, self.preferred = source, scale, preferred
        self.ops: list[Op] = []
        self.plain = {i: i for i in range(source.inputs)}
        self.scaled: dict[int, int] = {}

    def program(self) -> Program:
        outputs = [(sign, self._scaled(reg) if sign else 0) for sign, reg in self.source.outputs]
        return Program(self.source.inputs, tuple(self.ops), tuple(outputs))

    def _add(self, kind: str, a: int, b: int | None, constant: Fraction) -> int:
        self.ops.append(Op(kind, a, b, constant))
        return self.source.inputs + len(self.ops) - 1

    def _plain(self, register: int) -> int:
        if register not in self.plain:
            op = self.source.ops[register - self.source.inputs]
            a, b = self._plain(op.a), None if op.b is None else self._plain(op.b)
            self.plain[register] = self._add(op.kind, a, b, op.constant)
        return self.plain[register]

    def _scaled(self, register: int) -> int:
        if register not in self.scaled:
            self.scaled[register] = self._scale(register)
        return self.scaled[register]

    def _scale(self, register: int) -> int:
        if register in self.plain:  # an input, or what another op needs as it is
            return self._add("mul", self.plain[register], None, self.scale)
        op = self.source.ops[register - self.source.inputs]
        a, b = op.a, op.b
        if op.kind in ("add", "sub") and b is not None and self._cost(a) < self._cost(b):
            # a + b = b + a, a − b = −b + a
            return self._times("fma", b, self._scaled(a), Fraction(op.sign))
        kind = {"add": "fma", "sub": "fms"}.get(op.kind, op.kind)
        return self._times(kind, a, None if b is None else self._scaled(b), op.constant)

    def _times(self, kind: str, a: int, b: int | None, constant: Fraction) -> int:
        """constant · a, scaled, and b, which is: by a's own scale, or the constant's."""
        if a in self.scaled:
            return self._add(kind, self.scaled[a], b, constant)
        return self._add(kind, self._plain(a), b, constant * self.scale)

    def _cost(self, register: int) -> int:
        """How many ops its scaled value adds, roughly; an input that is not preferred, most."""
        if register in self.scaled:
            return 0
        if register < self.source.inputs:
            return 1 if register in self.preferred else 100
        op = self.source.ops[register - self.source.inputs]
        costs = [self._cost(r) for r in (op.a, op.b) if r is not None]
        return 1 + (min(costs) if op.kind in ("add", "sub") else costs[-1])


def program(matrix: Sequence[Sequence[Fraction | int]], simplify: bool = True) -> Program:
    """The straight-line program of an exact matrix with the fewest instructions found.

    ``simplify=False`` evaluates row by row without pairs or shared terms, as hand-written
    transforms do. Raises ValueError where the program does not compute the matrix exactly, which
    proves each one.
    """
    rows = tuple(tuple(Fraction(v) for v in row) for row in matrix)
    found = schedules(rows) if simplify else [rowwise(rows)]
    candidates = [Program(len(rows[0]), *ops) for ops in found]
    best = min(candidates, key=lambda p: p.counts.instructions)
    if best.exact() != rows:
        raise ValueError("the program does not compute its matrix")
    return best


def chained(programs: Sequence[Program]) -> Program:
    """One program that runs these one behind the other, the first first."""
    first, *others = programs
    for of in others:
        first = _behind(first, of)
    return first


def _behind(first: Program, of: Program) -> Program:
    """``of`` on the outputs of ``first``, whose signs its ops take, and its zeros."""
    ops = list(first.ops)
    registers: list[Output] = list(first.outputs)

    def add(kind: str, a: int, b: int | None, constant: Fraction) -> int:
        ops.append(Op(kind, a, b, constant))
        return first.inputs + len(ops) - 1

    for op in of.ops:
        (sign, a), (other, b) = registers[op.a], (0, 0) if op.b is None else registers[op.b]
        other *= op.sign
        if not sign:  # what is added alone is left
            registers.append((other, b) if other else (0, 0))
        elif other:
            kinds = ("add", "sub") if op.kind in ("add", "sub") else ("fma", "fms")
            registers.append((sign, add(kinds[sign != other], a, b, op.constant)))
        elif op.constant == 1:
            registers.append((sign, a))
        else:
            registers.append((sign, add("mul", a, None, op.constant)))
    outputs = tuple((s * registers[at][0], registers[at][1]) for s, at in of.outputs)
    return Program(first.inputs, tuple(ops), outputs)


def is_power_of_two(q: Fraction) -> bool:
    """Whether |q| is a power of two, so that multiplying by it rounds nothing."""
    return is_dyadic(q) and abs(q.numerator) & (abs(q.numerator) - 1) == 0


def _function(name: str, body: list[str], results: list[str]) -> str:
    """A device function of lines that compute and of what they leave."""
    return "\n".join(
        [
            "template <class X, class Y>",
            f"__device__ __forceinline__ void {name}(const X& x, Y& y) {{",
            *body,
            *(f"  y[{i}] = {v};" for i, v in enumerate(results)),
            "}",
        ]
    )


def _pair(precision: str, q: Fraction) -> str:
    """The bits of a pair of the 16-bit constant nearest to q."""
    nearest = np.float32(arithmetic(f"fp32,transform={precision}").constant(q))
    half = nearest.astype(np.float16).view(np.uint16)
    bits = nearest.view(np.uint32) >> 16 if precision == "bf16" else half
    return f"0x{int(bits) * 0x10001:08x}u"


def _hexadecimal(q: Fraction) -> str:
    """The FP32 constant nearest to q, in hexadecimal: rounded once, printed exactly."""
    return f"{float(arithmetic('fp32').constant(q)).hex()}f"


def _wide(q: Fraction) -> str:
    """The same in FP64."""
    return float(arithmetic("fp64").constant(q)).hex()
