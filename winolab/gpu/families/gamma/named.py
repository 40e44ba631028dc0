"""What a call of Γα(n,r) is called, on FFMA units and on Tensor Cores."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.algorithm import Algorithm, Gamma, Problem, Tile
from winolab.gpu.planner.correlation import Correlation


@dataclass(frozen=True)
class Named:
    """What is computed, by which algorithm."""

    direction: str
    problem: Problem
    correlation: Correlation
    tile: Tile
    points: str

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel."""
        return f"Γ{self.tile.alpha}({self.tile.n},{self.tile.r})"

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return Gamma((self.tile,), self.points)

    @property
    def tiles(self) -> tuple[Tile]:
        """The algorithm's."""
        return (self.tile,)
