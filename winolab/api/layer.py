"""What is asked of a layer: its problem, direction, algorithm, arithmetic and data, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from winolab.algorithm import Algorithm, direct
from winolab.api.data import Data
from winolab.arguments.shapes import nonempty
from winolab.options import ConvOptions
from winolab.problem import Problem
from winolab.ref.arithmetic.simulated import Arithmetic, arithmetic, summed
from winolab.ref.error.roundings import known


@dataclass(frozen=True)
class Layer:
    """A convolution in one direction by an algorithm in an arithmetic, of some data."""

    problem: Problem
    direction: str
    algorithm: Algorithm
    run: Arithmetic
    data: Data

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
        """What these arguments of a public function ask about.

        Raises ValueError, TypeError, in one line, for what is unknown or does not fit.
        """
        asked = ConvOptions(geometry["layout"], algorithm, precision).checked()
        problem = nonempty(Problem.of(input_shape, filter_shape, **geometry))
        known(direction)
        chosen = asked.named or direct()
        run = arithmetic(asked.precision)
        summed(run, chosen)  # which may not fit
        return cls(
            problem,
            direction,
            chosen,
            run,
            Data.of(data, problem, direction, geometry["layout"], run),
        )

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
            "algorithm": str(self.algorithm),
            "precision": self.run.name,
            "data": self.data.name,
        }

    def __str__(self) -> str:
        p = self.problem
        text = f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}"
        if not p.unit:
            text += f" stride {p.stride} dilation {p.dilation}"
        if p.groups > 1:
            text += f" groups {p.groups}"
        return f"{text}\n{self.algorithm} in {self.run.name}, data {self.data.name}"
