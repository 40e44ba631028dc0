"""A convolution with one tap as a product of matrices, and the tiles that threads have of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.gpu.families.skinny.config import Config


def sizes(direction: str, problem: Problem) -> tuple[int, int, int]:
    """Rows and columns of the result, and what is summed."""
    x, y = problem.in_channels, problem.out_channels
    positions = problem.batch * math.prod(problem.output)
    return {
        "forward": (positions, y, x),
        "backward_data": (positions, x, y),
        "backward_filter": (y, x, positions),
    }[direction]


@dataclass(frozen=True)
class Tiling:
    """One call: what is computed, by which config, on what grid."""

    direction: str
    problem: Problem
    precision: str
    dtype: str  # of the operands
    out_dtype: str
    config: Config
    device: Device

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows and columns of the result, and what is summed."""
        return sizes(self.direction, self.problem)

    @property
    def step(self) -> int:
        """Numbers of a sum that a thread takes at once."""
        return self.config.vector if self.direction == "forward" else 1

    @property
    def turned(self) -> bool:
        """Whether both operands' rows are what is summed: of a filter gradient."""
        return self.direction == "backward_filter"

    @property
    def across(self) -> int:
        """Tiles side by side."""
        return -(-self.sizes[1] // self.config.columns)

    @property
    def count(self) -> int:
        """Tiles of the result."""
        return self.across * -(-self.sizes[0] // self.config.rows)

    @property
    def grid(self) -> int:
        """Blocks of the launch."""
        return -(-self.count // self.config.tiles)

    @property
    def steps(self) -> int:
        """Steps of a thread, at most."""
        return -(-self.sizes[2] // (self.config.slices * self.step))
