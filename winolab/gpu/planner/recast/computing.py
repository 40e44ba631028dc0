"""Plans whose kernels are another's, which computes all that they ask of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol, Self

from winolab.algorithm import Problem
from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.translation_unit import TranslationUnit
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.base_plan import BasePlan, ComputesAs
from winolab.gpu.planner.request import Plan, Request
from winolab.ref.arithmetic.split import Scale

# What the operands and the result are.
ROLES = {"forward": "xwy", "backward_data": "ywx", "backward_filter": "xyw"}


class Choices(Protocol):
    """What the planner has for a request, its choice first."""

    @property
    def plans(self) -> tuple[Plan, ...]: ...


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


def within(
    asked: Request, near: bool, most: float, candidates: Callable[[Request, bool], Choices]
) -> Iterator[Plan]:
    """Plans of what is ``asked`` in another problem's place that are predicted to take ``most``
    seconds at most, whose kernels take any rows, and have flags only where passes may.
    ``candidates`` are the planner's."""
    with suppress(ValueError):  # no plan keeps to the tolerance
        for plan in candidates(asked, near).plans:
            in_rows = plan.regular_rows or plan.plane_step
            flags = plan.flags and not asked.in_phases
            if plan.predicted <= most and not in_rows and not flags:
                yield plan


class SeesOtherwise(ComputedByAnother):
    """A Plan of another's kernels, which see its arrays where they lie, by other strides."""

    @abstractmethod
    def _seen(self, view: View, role: str) -> View:
        """The view as kernels see it, of "x", "w" or "y", or the gradient that is so called."""

    @abstractmethod
    def _by(self, plan: Plan) -> Self:
        """The same by that plan."""

    @property
    def solved(self) -> Problem:
        """The problem that kernels compute."""
        return self.computing.solved

    @property
    def reads_filters_in_place(self) -> bool:
        return self.computing.reads_filters_in_place

    def scaled(self, scale: Scale | None) -> Self:
        """The plan with the caller's scale where its products are split."""
        return self._by(self.computing.scaled(scale)) if scale else self

    def with_epilogue(self, epilogue: Epilogue) -> Self | None:
        """The plan whose kernels apply it as they store y; None where they cannot."""
        found = self.computing.with_epilogue(epilogue)
        return self._by(found) if found else None

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        roles = ROLES[self.computing.direction]
        a, b, out = (self._seen(*each) for each in zip((a, b, out), roles, strict=True))
        self.computing.launch(kernels, a, b, out, workspace, index)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter."""
        self.computing.prepare(kernels, self._seen(b, "w"), prepared, index)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """As ``launch``, with the filter transformed."""
        of_a, _, of_out = ROLES[self.computing.direction]
        a, out = self._seen(a, of_a), self._seen(out, of_out)
        self.computing.run(kernels, a, prepared, out, workspace, index)
