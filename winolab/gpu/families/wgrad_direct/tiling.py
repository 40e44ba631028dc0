"""What a direct filter gradient on wgmma is cut into: columns that blocks share, or segments."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.gpu.families.direct_products import Tiling
from winolab.gpu.families.wgrad_direct.chunks import Columns, Shares
from winolab.gpu.families.wgrad_direct.config import DirectConfig, NarrowConfig, SplitConfig


@dataclass(frozen=True)
class ColumnsTiling(Tiling):
    """A call by columns, which ``shares`` gives to blocks."""

    config: DirectConfig
    columns: Columns
    shares: Shares


@dataclass(frozen=True)
class SplitTiling(ColumnsTiling):
    """A call by columns of split data."""

    config: SplitConfig


@dataclass(frozen=True)
class NarrowTiling(Tiling):
    """A call by segments of positions that are laid end to end."""

    config: NarrowConfig
    segments: int
    blocks: int  # of a segment
    workspace: int  # bytes: the segments' sums, if there are several

    @property
    def pitch(self) -> int:
        """Positions of a row of dy."""
        return self.gradient.output[2] + self.config.n - 1
