"""Translation units of fallbacks, which plans share whose split products differ."""

from __future__ import annotations

import re
from dataclasses import dataclass

from winolab.gpu.planner.request import CheckedCorrelation, FallbackCorrelation, Plan


@dataclass(frozen=True)
class FallbackUnit:
    """A fallback's kernels, each launched by itself, under names that no other plan's have."""

    plan: Plan

    @property
    def title(self) -> str:
        return f"{self.plan.title}, fallback"

    def source(self) -> str:
        """The translation unit."""
        return self.text

    @property
    def text(self) -> str:
        """The fallback's own part of it."""
        return renamed(self.plan.source())

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {renamed(name): size for name, size in self.plan.shared().items()}


@dataclass(frozen=True)
class OneLaunchUnit(FallbackUnit):
    """A correlation's kernels, in one launch, which begins with what the primary found."""

    plan: FallbackCorrelation
    primary: CheckedCorrelation

    def source(self) -> str:
        """The translation unit."""
        return joined(self.primary.found_source(), self.text)

    @property
    def text(self) -> str:
        return renamed(self.plan.fallback_source())

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {renamed(name): size for name, size in self.plan.fallback_shared().items()}


def joined(split: str, fallback: str) -> str:
    """Texts of both in one, in namespaces of their own."""
    parts = {"split": split, "fallback": fallback}
    return "\n".join(
        f"namespace {name} {{\n{text}\n}}  // namespace {name}" for name, text in parts.items()
    )


def renamed(text: str) -> str:
    """Kernels' names as the fallback has them: each says that it is one's."""
    return re.sub(r"\bwinolab_(?!\w*_fallback\b)\w+", r"\g<0>_fallback", text)
