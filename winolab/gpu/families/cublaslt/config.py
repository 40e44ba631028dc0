"""What a product of cuBLASLt may use."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.options import KernelConfig

USUAL = 16 << 20  # bytes of workspace, which every filter gradient may take


@dataclass(frozen=True)
class Config(KernelConfig):
    """Bytes of workspace that parts of sums may lie in: the library's own choice depends on it."""

    workspace: int

    def __str__(self) -> str:
        return f"workspace={self.workspace}"


def configs(limit: int | None) -> list[Config]:
    """Without a workspace, which is picked where both are predicted alike, and with one of up to
    the limit."""
    sizes = 0, USUAL if limit is None else min(limit, USUAL)
    return [Config(size) for size in dict.fromkeys(sizes)]
