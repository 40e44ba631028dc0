"""Translation units of plans whose filters' transforms are compiled by themselves.

NVRTC takes as long for these, in FP64, as for half of the others (docs/notes/102), and plans that
differ in how they multiply share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from winolab.gpu.codegen.translation_unit import TranslationUnit, Without
from winolab.gpu.planner.request import Plan


class TransformsFilter(Plan, Protocol):
    """A plan of such kernels."""

    def filter_source(self) -> str:
        """The text of what transforms the filter and finds scales; it says nothing of how the plan
        multiplies that those kernels need not know."""
        ...

    def filter_shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory of their kernels, by name."""
        ...


@dataclass(frozen=True)
class FilterUnit:
    """Those kernels, whose text other plans may have, too."""

    plan: TransformsFilter

    @property
    def title(self) -> str:
        return f"{self.plan.kernel} {self.plan.precision}, filter"

    def source(self) -> str:
        """The translation unit."""
        return self.plan.filter_source()

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return self.plan.filter_shared()


def units_of(plan: TransformsFilter) -> tuple[TranslationUnit, ...]:
    """A plan's units: of all other kernels, which takes longer, and of these."""
    return Without(plan, tuple(plan.filter_shared())), FilterUnit(plan)
