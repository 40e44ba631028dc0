"""Members of a plan that are another's, whose kernels compute all that it asks of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from winolab.algorithm import Tile
from winolab.device import Device
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.request import Plan
from winolab.options import KernelConfig


class ComputedByAnother(BasePlan, ABC):
    """A Plan whose products, tiles and arithmetic are those of its ``computing`` one."""

    @property
    @abstractmethod
    def computing(self) -> Plan:
        """The plan whose kernels run."""

    @property
    def device(self) -> Device:
        return self.computing.device

    @property
    def precision(self) -> str:
        """Precision of the products."""
        return self.computing.precision

    @property
    def out_dtype(self) -> str:
        return self.computing.out_dtype

    @property
    def tiles(self) -> tuple[Tile, ...]:
        return self.computing.tiles

    @property
    def points(self) -> str:
        return self.computing.points

    @property
    def scaling(self) -> str | None:
        return self.computing.scaling

    @property
    def simulated(self) -> str:
        """What the reference calls the arithmetic."""
        return self.computing.simulated

    @property
    def split_sums(self) -> tuple[tuple[float, int], ...]:
        return self.computing.split_sums

    @property
    def checks_accuracy(self) -> bool:
        """Whether the other does."""
        return self.computing.checks_accuracy

    @property
    def accurate(self) -> bool:
        return self.computing.accurate

    @property
    def neighbours(self) -> int:
        """The other's, whose kernels read maps as they lie."""
        return self.computing.neighbours

    @property
    def config(self) -> KernelConfig:
        return self.computing.config
