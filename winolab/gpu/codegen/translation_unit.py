"""What is compiled, kept and loaded by itself; a plan has one or several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from winolab.gpu.codegen.emit import without


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


@dataclass(frozen=True)
class Without:
    """A unit without some of its kernels, which another has, or nobody launches."""

    unit: TranslationUnit
    kernels: tuple[str, ...]

    @property
    def title(self) -> str:
        return self.unit.title

    def source(self) -> str:
        """The translation unit."""
        return without(self.unit.source(), self.kernels)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {n: size for n, size in self.unit.shared().items() if n not in self.kernels}


def kernels_by_unit(plan: Launched) -> Iterator[tuple[TranslationUnit, dict[str, int]]]:
    """The units, each with those of its kernels that the plan launches."""
    launched = plan.shared()
    for unit in plan.translation_units():
        yield unit, {name: launched[name] for name in unit.shared() if name in launched}
