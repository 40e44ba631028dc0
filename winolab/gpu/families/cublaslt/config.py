"""What a product of cuBLASLt may use."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.options import KernelConfig

USUAL = 16 << 20  # bytes of workspace, which every filter gradient may take
CHOICES = 6  # of the library's that a clock chooses from


@dataclass(frozen=True)
class Config(KernelConfig):
    """Bytes of workspace that parts of sums may lie in, on which the library's own choices depend,
    and which of these is taken: 0 is the one that its heuristics put first."""

    workspace: int
    choice: int = 0

    def __str__(self) -> str:
        return f"workspace={self.workspace}" + f" choice={self.choice}" * (self.choice > 0)


def configs(limit: int | None) -> list[Config]:
    """Without a workspace, which is picked where both are predicted alike, and with one of up to
    the limit."""
    sizes = 0, USUAL if limit is None else min(limit, USUAL)
    return [Config(size) for size in dict.fromkeys(sizes)]
