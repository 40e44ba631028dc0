"""A kind of algorithm that is added from outside: direct convolution, ``times`` over, under a name.

One module: its class with its text, how it runs, costs and errs. The registry needs a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from winolab.algorithm import Algorithm, Problem, direct
from winolab.arguments.values import whole
from winolab.kind import placed
from winolab.ref.algorithms import winograd
from winolab.ref.arithmetic.simulated import Arithmetic
from winolab.ref.cost.blocks import Work
from winolab.ref.error import bounds
from winolab.ref.error.predict import Prediction
from winolab.ref.kinds import direct as of_direct

TILED = False


@dataclass(frozen=True)
class Plain(Algorithm):
    """Direct convolution, done so many times."""

    kind = "plain"
    form = "plain:2"
    times: int = placed(1, lambda value: whole(value, "times"))

    def _check(self) -> None:
        if self.times < 1:
            raise ValueError(f"plain: {self.times} times; expected at least 1")

    @classmethod
    def of_text(cls, numbers: list[list[Any]], options: dict[str, Any]) -> Plain | None:
        match numbers:
            case [[times]]:
                return cls(times)
        return None

    def _placed(self) -> tuple[int]:
        return (self.times,)


def forward(a: np.ndarray, b: np.ndarray, p: Problem, _: Algorithm, run: Arithmetic) -> np.ndarray:
    return winograd.forward(a, b, p, direct(), run)


def backward_data(
    a: np.ndarray, b: np.ndarray, p: Problem, _: Algorithm, run: Arithmetic
) -> np.ndarray:
    return winograd.backward_data(a, b, p, direct(), run)


def backward_filter(
    a: np.ndarray, b: np.ndarray, p: Problem, _: Algorithm, run: Arithmetic
) -> np.ndarray:
    return winograd.backward_filter(a, b, p, direct(), run)


def work(problem: Problem, algorithm: Algorithm, direction: str) -> Work:
    blocks = of_direct.work(problem, direct(), direction).blocks
    return Work(tuple(blocks) * Plain.of(algorithm).times)


def bound(
    a: np.ndarray, b: np.ndarray, p: Problem, _: Algorithm, run: Arithmetic, direction: str
) -> np.ndarray:
    return bounds.bound(a, b, p, direct(), run, direction=direction)


def predict(
    a: Any, b: Any, p: Problem, _: Algorithm, run: Arithmetic, direction: str
) -> Prediction:
    return of_direct.predict(a, b, p, direct(), run, direction)


def states(p: Problem, _: Algorithm, run: Arithmetic, direction: str) -> Iterator[Any]:
    yield from of_direct.states(p, direct(), run, direction)


def usual(problem: Problem, direction: str) -> Iterator[Algorithm]:
    yield Plain(3)
