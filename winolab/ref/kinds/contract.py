"""What a kind of algorithm offers the reference, the error bounds, the costs and the command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Algorithm, Problem
from winolab.ref.algebra.transforms import Programs
from winolab.ref.arithmetic.simulated import Arithmetic
from winolab.ref.cost.blocks import Work
from winolab.ref.error.moments import Moments
from winolab.ref.error.predict import Prediction


class Kind(Protocol):
    """The members of a kind's module, each for algorithms of that kind.

    Arrays are channels-last; functions raise ValueError where the algorithm does not serve a
    problem or a direction.
    """

    @property
    def TILED(self) -> bool:
        """Whether winolab.ref.algorithms.winograd computes it as it is: then it has samples and
        typed constants."""
        ...

    def forward(
        self, x: np.ndarray, w: np.ndarray, problem: Problem, algorithm: Algorithm,
        arithmetic: Arithmetic, /,
    ) -> np.ndarray:  # fmt: skip
        """y (N, *output, OC) of x (N, *input, IC) and w (OC, *filter, IC/groups), as carriers."""
        ...

    def backward_data(
        self, dy: np.ndarray, w: np.ndarray, problem: Problem, algorithm: Algorithm,
        arithmetic: Arithmetic, /,
    ) -> np.ndarray:  # fmt: skip
        """dx (N, *input, IC) of dy and w."""
        ...

    def backward_filter(
        self, x: np.ndarray, dy: np.ndarray, problem: Problem, algorithm: Algorithm,
        arithmetic: Arithmetic, /,
    ) -> np.ndarray:  # fmt: skip
        """dw (OC, *filter, IC/groups) of x and dy."""
        ...

    def work(self, problem: Problem, algorithm: Algorithm, direction: str, /) -> Work:
        """What its cost is counted from."""
        ...

    def bound(
        self, a: NDArray[Any], b: NDArray[Any], problem: Problem, algorithm: Algorithm,
        run: Arithmetic, direction: str, /,
    ) -> NDArray[np.float64]:  # fmt: skip
        """A proven bound of |computed − exact| for each output, infinity where there is none."""
        ...

    def predict(
        self, a: Moments | NDArray[Any], b: Moments | NDArray[Any], problem: Problem,
        algorithm: Algorithm, run: Arithmetic, direction: str, /,
    ) -> Prediction:  # fmt: skip
        """The errors that random data of these moments, or these arrays, are expected to have."""
        ...

    def states(
        self, problem: Problem, algorithm: Algorithm, run: Arithmetic, direction: str, /
    ) -> Iterable[tuple[Sequence[Programs], int]]:
        """The programs along each dimension of every kind of tile that has states of its own, and
        how many products a state sums."""
        ...

    def usual(self, problem: Problem, direction: str, /) -> Iterable[Algorithm]:
        """Those in the sizes that papers use and that serve the problem, for comparison."""
        ...
