"""Plans whose kernels are another's, which computes all that they ask of it."""

from __future__ import annotations

from winolab.gpu.codegen.translation_unit import TranslationUnit
from winolab.gpu.planner.base_plan import BasePlan, ComputesAs


class ComputedByAnother(ComputesAs, BasePlan):
    """A Plan of the kernels of its ``computing`` one, which need as much time and workspace."""

    @property
    def checks_accuracy(self) -> bool:
        """Whether the other does."""
        return self.computing.checks_accuracy

    @property
    def neighbours(self) -> int:
        """The other's, whose kernels read maps as they lie."""
        return self.computing.neighbours

    @property
    def predicted(self) -> float:
        return self.computing.predicted

    @property
    def workspace(self) -> int:
        return self.computing.workspace

    @property
    def prepared_size(self) -> int:
        return self.computing.prepared_size

    @property
    def beside(self) -> int:
        return self.computing.beside

    def source(self) -> str:
        """The other's."""
        return self.computing.source()

    def translation_units(self) -> tuple[TranslationUnit, ...]:
        """The other's."""
        return self.computing.translation_units()

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory of the other's kernels, by name."""
        return self.computing.shared()
