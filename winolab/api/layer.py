"""What is asked of a layer: its problem, direction, algorithm, arithmetic and data, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from winolab.algorithm import Algorithm, direct, parse_algorithm
from winolab.api.data import Data
from winolab.api.peers import peer
from winolab.arguments.arrays import precision_of_shapes
from winolab.arguments.shapes import nonempty
from winolab.arguments.values import layer_shapes
from winolab.problem import Problem, check_layout
from winolab.ref.arithmetic.simulated import Arithmetic, summed
from winolab.ref.error.roundings import known
from winolab.ref.operands import arithmetic_of


@dataclass(frozen=True)
class Layer:
    """A convolution in one direction by an algorithm in an arithmetic, of some data."""

    problem: Problem
    direction: str
    algorithm: Algorithm
    run: Arithmetic
    data: Data
    name: str  # the algorithm's, as it was asked for

    @classmethod
    def of(
        cls,
        input_shape: Sequence[int],
        filter_shape: Sequence[int],
        direction: str,
        algorithm: str | Algorithm | None,
        geometry: dict[str, Any],
        precision: Any,
        data: Any,
    ) -> Layer:
        """What these arguments of a public function ask about; the algorithm may be another
        library's.

        Raises ValueError, TypeError, in one line, for what is unknown or does not fit.
        """
        check_layout(geometry["layout"])
        x_shape, w_shape = layer_shapes(input_shape, filter_shape)
        problem = nonempty(Problem.of(x_shape, w_shape, **geometry))
        known(direction)
        precision, name = precision_of_shapes(precision), None
        if isinstance(algorithm, str) and isinstance(precision, str):
            found = peer(algorithm, problem, direction, precision)
            if found:
                name, algorithm, precision = found.name, found.algorithm, found.precision
        chosen = direct() if algorithm is None else parse_algorithm(algorithm)
        run = arithmetic_of(precision)
        summed(run, chosen)  # which may not fit
        asked = Data.of(data, problem, direction, geometry["layout"], run)
        return cls(problem, direction, chosen, run, asked, name or str(chosen))

    @property
    def facts(self) -> dict[str, Any]:
        """The question, as JSON has it."""
        p = self.problem
        return {
            "direction": self.direction,
            "x": p.x_shape,
            "w": p.w_shape,
            "stride": p.stride,
            "padding": p.padding,
            "dilation": p.dilation,
            "groups": p.groups,
            "name": self.name,
            "algorithm": str(self.algorithm),
            "precision": self.run.name,
            "data": self.data.name,
        }

    def __str__(self) -> str:
        meant = f"{self.algorithm} in {self.run.name}, data {self.data.name}"
        named = "" if self.name == str(self.algorithm) else f"{self.name}: "
        return f"{self.problem.told(self.direction)}\n{named}{meant}"
