"""Members of a Plan that are the same for most families."""

from __future__ import annotations

from typing import ClassVar

from winolab.algorithm import Problem
from winolab.arguments.epilogue import Epilogue
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
    reads_filters_in_place: bool = False
    regular_rows: bool = False
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
