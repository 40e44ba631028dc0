"""The transforms as published kernels run them: row pairs, left to right, constants typed.

winolab's own programs share more than the papers' "transform simplification" does, and print each
constant from its fraction. To reproduce a published kernel's error its order of operations and its
typed constants have to be had: equal and opposite rows (or columns) are paired and nothing else is
shared, sums run from left to right, constants keep a number of significant decimal digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache, partial

from winolab.algorithm import Tile
from winolab.measure import significant
from winolab.ref.algebra.program import Program
from winolab.ref.algebra.schedule import Op, Output
from winolab.ref.algebra.transforms import Programs, transforms
from winolab.ref.algorithms.winograd import ProgramsOf

Matrix = Sequence[Sequence[Fraction]]
# Significant digits of the constants in the published kernels of α = 16; no paper states them.
DIGITS = 7


@cache
def _programs(tile: Tile, points: str, digits: int | None) -> Programs:
    exact = transforms(tile.n, tile.r, points)
    programs = (by_columns(exact.AT), by_rows(exact.G), by_rows(exact.BT))
    if digits is None:
        return Programs(*programs)
    typed = partial(significant, digits=digits)
    return Programs(*(p.with_constants(typed) for p in programs))


def published(points: str = "paper", digits: int | None = None) -> ProgramsOf:
    """Programs of a tile in a published kernel's order; ``digits`` None leaves constants exact."""
    return lambda tile: _programs(tile, points, digits)


def by_rows(matrix: Matrix) -> Program:
    """Consecutive rows with equal and opposite entries share their even and their odd part."""
    build = _Builder(len(matrix[0]))
    outputs: list[Output] = []
    rows = iter(range(len(matrix)))
    for i in rows:
        row = matrix[i]
        other = matrix[i + 1] if i + 1 < len(matrix) else None
        if other is None or [abs(v) for v in row] != [abs(v) for v in other]:
            outputs.append((1, build.chain(enumerate(row))))
            continue
        even = build.chain((j, v) for j, v in enumerate(row) if v == other[j])
        odd = build.chain((j, v) for j, v in enumerate(row) if v != other[j])
        outputs += [(1, build.op("add", even, odd)), (1, build.op("sub", even, odd))]
        next(rows)
    return Program(build.inputs, tuple(build.ops), tuple(outputs))


def by_columns(matrix: Matrix) -> Program:
    """Consecutive columns with equal and opposite entries are added and subtracted first."""
    build = _Builder(len(matrix[0]))
    columns = list(zip(*matrix, strict=True))
    sums: dict[int, tuple[int, int]] = {}
    positions = iter(range(len(columns)))
    for j in positions:
        pair = columns[j : j + 2]
        if len(pair) == 2 and [abs(v) for v in pair[0]] == [abs(v) for v in pair[1]]:
            sums[j] = (build.op("add", j, j + 1), build.op("sub", j, j + 1))
            next(positions)
    outputs: list[Output] = []
    for row in matrix:
        terms: list[tuple[int, Fraction]] = []
        for j, v in enumerate(row):
            if j in sums:
                terms.append((sums[j][0 if v == row[j + 1] else 1], v))
            elif j - 1 not in sums:
                terms.append((j, v))
        outputs.append((1, build.chain(terms)))
    return Program(build.inputs, tuple(build.ops), tuple(outputs))


class _Builder:
    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.ops: list[Op] = []

    def op(self, kind: str, a: int, b: int | None, constant: Fraction = Fraction(1)) -> int:
        self.ops.append(Op(kind, a, b, constant))
        return self.inputs + len(self.ops) - 1

    def chain(self, terms) -> int:
        """The sum of constant·register from left to right: a product, then multiply-adds."""
        total = None
        for register, q in terms:
            if q == 0:
                continue
            if total is None:
                total = register if q == 1 else self.op("mul", register, None, q)
            elif abs(q) == 1:
                total = self.op("add" if q > 0 else "sub", total, register)
            else:
                total = self.op("fma", register, total, q)
        if total is None:
            raise ValueError("a transform's row or half-row is zero: it has no pair to share")
        return total
