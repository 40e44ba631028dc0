"""Plans whose kernels are another's, which computes all that they ask of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import ClassVar, Protocol, Self

from winolab.algorithm import Problem
from winolab.arguments.epilogue import Epilogue
from winolab.gpu.codegen.translation_unit import TranslationUnit
from winolab.gpu.params import Kernels, View, aligned
from winolab.gpu.planner.base_plan import BasePlan, ComputesAs
from winolab.gpu.planner.request import DTYPES, ITEMSIZE, Plan, Request
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


class BesideAnother(ComputedByAnother):
    """A Plan whose kernels write an array for another's or read it, and write the filter that this
    other takes. In the workspace the array stands behind the other's, and the filter behind both;
    of a filter apart behind the other's transformed one."""

    namespace: ClassVar[str]  # of the kernels' source

    @property
    @abstractmethod
    def _array(self) -> int:
        """Bytes of the array."""

    @property
    @abstractmethod
    def _filter(self) -> int:
        """Bytes of the filter."""

    @property
    @abstractmethod
    def _unit(self) -> TranslationUnit:
        """The kernels."""

    @abstractmethod
    def _write_filter(self, kernels: Kernels, b: View, place: int) -> View:
        """Launch what writes the filter to that address."""

    @abstractmethod
    def _filter_at(self, address: int) -> View:
        """The filter as it is written there."""

    @property
    def prepared_size(self) -> int:
        """Bytes of the transformed filter, and of the other's behind it."""
        return aligned(self.computing.prepared_size) + self._filter

    @property
    def beside(self) -> int:
        """Bytes: the other's, and behind them the array."""
        return self._before + self._array

    @property
    def workspace(self) -> int:
        """Bytes: the other's, the array and the filter."""
        whole = aligned(self.computing.workspace) + aligned(self._array) + self._filter
        return max(whole, aligned(self.beside) + self.prepared_size)

    @property
    def _before(self) -> int:
        """Bytes before the array, where the filter is apart."""
        p = self.computing
        return aligned(p.beside if p.prepared_size else p.workspace)

    @property
    def _size(self) -> int:
        """Bytes of an operand's element."""
        return ITEMSIZE[DTYPES[self.precision]]

    def source(self) -> str:
        """The other's and the kernels' in one."""
        name, own = self.namespace, self._unit.source()
        return f"{self.computing.source()}\nnamespace {name} {{\n{own}\n}}  // namespace {name}"

    def translation_units(self) -> tuple[TranslationUnit, ...]:
        """The other's, and the kernels', which other plans have, too."""
        return *self.computing.translation_units(), self._unit

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return self.computing.shared() | self._unit.shared()

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Write the filter, and transform it where the other does."""
        w = self._write_filter(kernels, b, prepared + aligned(self.computing.prepared_size))
        if self.computing.prepared_size:
            self.computing.prepare(kernels, w, prepared, index)

    def _run_other(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """The other's launches, with what ``prepare`` made."""
        p = self.computing
        if p.prepared_size:
            p.run(kernels, a, prepared, out, workspace, index)
        else:
            p.launch(kernels, a, self._filter_at(prepared), out, workspace, index)
