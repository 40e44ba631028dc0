"""Members of a Plan that are the same for most families."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from winolab.algorithm import Problem, Tile
from winolab.arguments.epilogue import Epilogue
from winolab.device import Device
from winolab.gpu.codegen.translation_unit import TranslationUnit
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.request import (
    CheckedCorrelation,
    FallbackCorrelation,
    FallbackLaunches,
    Plan,
    Sum,
)
from winolab.kind import ShowsText
from winolab.options import KernelConfig
from winolab.ref.arithmetic.split import Scale

WHOLE_SUMS = ((1.0, 1),)  # all results, each in one sum


class TakesFilters(ShowsText):
    """A Plan's members about a filter apart, a fallback, an epilogue, planes, where it has none."""

    @property
    def title(self: Plan) -> str:
        return f"{self.kernel} {self.precision} {self.config}"

    @property
    def solved(self: Plan) -> Problem:
        return self.problem

    @property
    def checked_correlation(self) -> CheckedCorrelation | None:
        return None

    @property
    def fallback_correlation(self) -> FallbackCorrelation | None:
        return None

    @property
    def fallback_launches(self) -> FallbackLaunches | None:
        return None

    @property
    def prepared_size(self) -> int:
        return 0

    @property
    def beside(self: Plan) -> int:
        return self.workspace - self.prepared_size

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        raise TypeError(f"{type(self).__name__} takes the filter as it is; launch it")

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        raise TypeError(f"{type(self).__name__} takes the filter as it is; launch it")

    def with_epilogue(self, epilogue: Epilogue) -> Plan | None:
        return None

    @property
    def in_planes(self) -> Plan | None:
        return None


class BasePlan(TakesFilters):
    """The members of a Plan that are the same for most families: there is no fallback."""

    scaling: str | None = None
    sums: tuple[Sum, ...] = ()
    split_sums: tuple[tuple[float, int], ...] = WHOLE_SUMS
    checks_accuracy: bool = False
    accurate: bool = True
    sums_alone: bool = False
    reads_filters_in_place: bool = False
    regular_rows: bool = False
    merges_pixels: bool = False
    plane_step: int = 0
    neighbours: int = -1
    flags: ClassVar[int] = 0

    @property
    def primary(self: Plan) -> Plan:
        return self

    @property
    def fallback(self) -> Plan | None:
        return None

    def translation_units(self: Plan) -> tuple[TranslationUnit, ...]:
        return (self,)

    def scaled(self: Plan, scale: Scale | None) -> Plan:
        return self


class ComputesAs(ABC):
    """The members of a Plan about what is multiplied and how it is summed, of one whose are those
    of another, ``computing``."""

    @property
    @abstractmethod
    def computing(self) -> Plan:
        """The other plan."""

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
    def accurate(self) -> bool:
        return self.computing.accurate

    @property
    def sums(self) -> tuple[Sum, ...]:
        return self.computing.sums

    @property
    def config(self) -> KernelConfig:
        return self.computing.config
