"""The tiled engine in exact arithmetic, over integers: nothing is rounded, so any order will do.

Every matrix is brought to whole numbers by its common denominator, and so are the tensors. What is
left of all that divides the outputs, once; Fractions, whose every sum looks for common divisors,
are met there alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from winolab.ref.algebra.program import Program
from winolab.ref.algebra.transforms import Programs
from winolab.ref.algorithms.engine import Engine
from winolab.ref.arithmetic.exact import Exact, integer_matmul, whole_numbers


@dataclass(frozen=True)
class Integers(Exact):
    """Exact arithmetic on object arrays of int."""

    def asarray(self, x: Any) -> np.ndarray:
        return whole_numbers(np.asarray(x, object))[0]  # np.pad's zeros are NumPy's, which wrap

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return integer_matmul(a, b)


@dataclass(frozen=True)
class WholeMatrix:
    """A program's matrix times ``denominator``, whole numbers."""

    rows: tuple[tuple[int, ...], ...]
    denominator: int

    def evaluate(self, x: np.ndarray, arithmetic: Any, axis: int = -1) -> np.ndarray:
        """The matrix applied along ``axis`` of an array of int."""
        moved = np.moveaxis(x, axis, 0)
        if self.rows == ((1,),):
            return x
        made = integer_matmul(self._array, moved.reshape(len(moved), -1))
        return np.moveaxis(made.reshape(len(made), *moved.shape[1:]), 0, axis)

    @cached_property
    def _array(self) -> np.ndarray:
        return np.array(self.rows, object)

    def exact(self) -> tuple[tuple[int, ...], ...]:
        """What a program of it would compute."""
        return self.rows


@lru_cache(maxsize=512)
def whole_matrix(program: Program) -> WholeMatrix:
    """The matrix of a program over its common denominator."""
    exact = program.exact()
    denominator = math.lcm(*(v.denominator for row in exact for v in row))
    rows = tuple(tuple(int(v * denominator) for v in row) for row in exact)
    return WholeMatrix(rows, denominator)


@dataclass(frozen=True)
class Integral(Engine):
    """The engine of tensors of int, ``scale`` times what they stand for together."""

    scale: int = 1

    @classmethod
    def of(cls, engine: Engine, scale: int) -> Integral:
        """The same on whole numbers."""
        made = [
            Programs(*map(whole_matrix, (p.AT, p.G, p.BT)))  # type: ignore[arg-type]
            for p in engine.programs
        ]
        for p in made:
            for matrix in (p.AT, p.G, p.BT):
                scale *= matrix.denominator  # type: ignore[attr-defined]
        same = engine.problem, engine.region
        return cls(*same, tuple(made), Integers(), engine.order, engine.spread, scale)

    @property
    def gains(self) -> tuple[Fraction, Fraction]:
        """Nothing is scaled by them."""
        return Fraction(1), Fraction(1)

    def blocks(
        self, x: np.ndarray, w: np.ndarray, ids: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for positions, values in super().blocks(x, w, ids):
            yield positions, values if self.scale == 1 else self._divided(values)

    def _divided(self, values: np.ndarray) -> np.ndarray:
        out, scale = np.empty(values.shape, object), self.scale
        flat = values.reshape(-1).tolist()
        out.reshape(-1)[:] = [Fraction(v, scale) if v % scale else v // scale for v in flat]
        return out
