"""What is compiled, kept and loaded by itself; a plan has one or several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class TranslationUnit(Protocol):
    """A frozen value; of those whose text is equal, of several plans, one is compiled."""

    @property
    def title(self) -> str:
        """What the log calls it."""
        ...

    def source(self) -> str:
        """Its text; empty where a library has its kernels."""
        ...

    def shared(self) -> dict[str, int]:
        """Its kernels by name, with the bytes of dynamic shared memory of each."""
        ...


class Launched(TranslationUnit, Protocol):
    """What launches kernels of such units; it is one itself unless it has several."""

    def translation_units(self) -> tuple[TranslationUnit, ...]:
        """What has its kernels, whose names all differ."""
        ...


def kernels_by_unit(plan: Launched) -> Iterator[tuple[TranslationUnit, dict[str, int]]]:
    """The units, each with those of its kernels that the plan launches."""
    launched = plan.shared()
    for unit in plan.translation_units():
        yield unit, {name: launched[name] for name in unit.shared() if name in launched}
