"""A proven bound of the error of quantised convolution: what grids round, and what FP32 does.

With v and u the exact states of x and w, v̂ and û as FP32 computes them, and δ what rounding to the
grid changes, the products of a state are Σ (v̂ + δᵥ)(û + δᵤ). Σ v̂ û is the FP32 algorithm's and has
its bound (winolab.ref.error.bounds), three roundings added for the scales. The rest is at most
Σ (|v̂| hᵤ + hᵥ |û| + hᵥ hᵤ), where h = s/2 on integers (nothing is clipped), and u_f |v| + s η/2 on
FP8 numbers of unit roundoff u_f and spacing η below the normal ones. It goes through |AT|. |v̂| is
at most P_BT |x|, the sum over the program's paths of magnitudes, times the growth E of all
roundings; so is the peak that the scale s is made of, of P's peak. Hence E² times what P alone
gives; FP64's own roundings are below one of E's. Exact sums of residues are direct convolution's:
one state, no paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Problem, direct
from winolab.ref.algorithms import winograd
from winolab.ref.algorithms.winograd import ProgramsOf
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.bounds import RUNS, Costing, Magnitude, assembled
from winolab.ref.error.roundings import depth_of, tiling
from winolab.ref.quantized.residues import Residues
from winolab.ref.quantized.scales import Quantized

SCALES = 3  # roundings: of their product, of the sum, of their product with it
LEAST = 2.0**-120  # more than underflow in FP32 moves a state by


@dataclass(eq=False)
class Rounding(Magnitude):
    """Magnitudes whose products are what ``grid`` changes of them, at most."""

    grid: Quantized | None = None

    def of_states(self, v: Iterable[Any], u: Any) -> Rounding:
        assert self.grid
        self.grid = self.grid.of_states(((block + LEAST) for block in v), u + LEAST)
        return self

    def matmul(self, a: Any, b: Any) -> NDArray[np.float64]:
        assert self.grid
        assert self.grid.scales
        a, b = np.abs(a) + LEAST, np.abs(b) + LEAST
        sides = []
        for x, scale in zip((a, b), self.grid.scales, strict=True):
            absolute, relative = self.grid.error(scale * self.grid.largest)
            sides.append(absolute + relative * x)
        h, g = sides
        return np.matmul(a + h, g) + np.matmul(h, b)


@np.errstate(all="ignore")
def bound(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: Algorithm,
    run: Quantized | Residues,
    *,
    direction: str = "forward",
    programs: ProgramsOf | None = None,
) -> NDArray[np.float64]:
    """Bound of |computed − exact| for each output of a tiled algorithm in that direction.

    The arguments are those of winolab.ref.error.bounds.bound. Infinity where nothing is proven.
    """
    if isinstance(run, Residues):
        run, algorithm, programs = run.quantized, direct(), None
    layer, boxes = tiling(problem, algorithm, direction)
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    how = (np.abs(a), np.abs(b), problem, algorithm)
    magnitude = Magnitude()
    size = np.abs(RUNS[direction](*how, magnitude, programs))
    changed = np.abs(RUNS[direction](*how, Rounding(grid=replace(run, scales=None)), programs))
    kinds = {(tuple(s.tile for s in x.segments), depth_of(layer, x)) for x in boxes}
    of, single = programs or winograd.programs_of(algorithm), arithmetic("fp32")
    costing = Costing(algorithm, of, programs, pieces=1 + SCALES)
    exact = assembled(a, b, single, size, magnitude, kinds, costing)
    costs = [costing.cost(tiles, depth, single) for tiles, depth in kinds]
    unit = math.log1p(2.0**-24)
    growth = max((c.growth + c.storage for c in costs), default=0.0) + (1 + SCALES) * unit
    total = exact + math.exp(2 * growth) * changed
    return np.where(np.isnan(total), np.inf, total)
