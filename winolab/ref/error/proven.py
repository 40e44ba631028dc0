"""A proven bound of the rounding errors of every algorithm but WinRS, in every direction.

Tiled algorithms: winolab.ref.error.bounds. Other kinds have their own beside what they compute,
with the proof: winolab.ref.kinds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Problem, parse_algorithm
from winolab.problem import shapes
from winolab.ref.arithmetic.simulated import Arithmetic, arithmetic
from winolab.ref.error.roundings import known
from winolab.ref.kinds.registry import ENGINES
from winolab.ref.quantized.scales import Single


@np.errstate(all="ignore")
def proven(
    a: NDArray[Any],
    b: NDArray[Any],
    problem: Problem,
    algorithm: str | Algorithm,
    run: str | Arithmetic,
    *,
    direction: str = "forward",
) -> NDArray[np.float64]:
    """Bound of |computed − exact| for each output of the algorithm's function of that direction.

    Arguments and infinities are those of bounds.bound. An FFT has none whose lengths are not powers
    of two, or whose products are of fewer exponents than FP32's; omega and winrs have none, nor
    have quantised operands but those of tiled algorithms.

    Raises ValueError for an unknown direction, or an algorithm that does not serve it.
    """
    known(direction)
    algorithm, run = parse_algorithm(algorithm), arithmetic(run)
    if isinstance(run, Single) and not ENGINES[algorithm.kind].TILED:
        return np.full(shapes(direction, problem)[2], np.inf)
    return ENGINES[algorithm.kind].bound(a, b, problem, algorithm, run, direction)
