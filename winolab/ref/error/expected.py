"""The predicted rounding errors of every algorithm, in every direction.

Tiled algorithms: winolab.ref.error.predict. Other kinds have their own models beside what they
compute: winolab.ref.kinds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Problem, parse_algorithm
from winolab.ref.arithmetic.simulated import Arithmetic, arithmetic
from winolab.ref.error.moments import Moments
from winolab.ref.error.predict import Prediction
from winolab.ref.error.roundings import known
from winolab.ref.kinds.registry import ENGINES


@np.errstate(all="ignore")
def expected(
    a: Moments | NDArray[Any],
    b: Moments | NDArray[Any],
    problem: Problem,
    algorithm: str | Algorithm,
    run: str | Arithmetic,
    *,
    direction: str = "forward",
) -> Prediction:
    """Errors of the algorithm's function of that direction, for random data.

    ``a`` and ``b`` are that function's first two arguments, or their moments. Of arrays, tiled
    algorithms have the error of every output. Roundings of the data to the storage format and of
    the result to a narrower one do not count.

    Raises ValueError for an unknown direction, or an algorithm that does not serve it or the
    problem, TypeError for an array beside moments.
    """
    known(direction)
    algorithm, run = parse_algorithm(algorithm), arithmetic(run)
    if isinstance(a, Moments) != isinstance(b, Moments):
        raise TypeError("a prediction of an array and moments; expected two arrays or two moments")
    return ENGINES[algorithm.kind].predict(a, b, problem, algorithm, run, direction)
