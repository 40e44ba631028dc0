"""The error of every output, from the tensors themselves: which lose what large neighbours cost.

An error of a transformed tile is relative to the numbers of the tile. With S = (AT)² Σ (G w)² (BT
x)², squares of all elements, of the data at hand, the expected square of an output's error is c S
where random data of the same moments have errors of expected square c E[S] (see predict).
Direct products have S = Σ w² x² of the output itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Problem, Tile
from winolab.ref.algebra.program import program
from winolab.ref.algebra.transforms import Programs
from winolab.ref.algorithms.engine import Region
from winolab.ref.algorithms.winograd import ProgramsOf
from winolab.ref.arithmetic.exact import Arithmetic
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.error.bounds import RUNS


class _Squares(Arithmetic):
    """FP64 transforms of both tensors, whose products are squares from then on."""

    @property
    def name(self) -> str:
        return "squares"

    def asarray(self, x: Any) -> NDArray[np.float64]:
        return FORMATS["fp64"].nearest(x)

    def constant(self, q: Fraction | int) -> np.float64:
        return np.float64(q)

    def to_float64(self, y: Any) -> NDArray[np.float64]:
        return y

    def matmul(self, a: Any, b: Any) -> NDArray[np.float64]:
        return np.matmul(a**2, b**2)


def errors(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: Algorithm,
    of: ProgramsOf,
    direction: str,
    factors: Sequence[tuple[Region, float]],
) -> NDArray[np.float64]:
    """Expected absolute error, the RMS of it, of each output; ``factors``: c of each region."""

    @cache
    def squared(tile: Tile) -> Programs:
        made = of(tile)
        at = [[v * v for v in row] for row in made.AT.exact()]
        return Programs(program(at, simplify=False), made.G, made.BT)

    squares = RUNS[direction](a, b, problem, algorithm, _Squares(), squared)
    for region, factor in factors:
        spans = (slice(s.start, s.start + s.tile.n * s.tiles) for s in region.segments)
        squares[(slice(None), *spans)] *= factor
    return np.sqrt(squares)
