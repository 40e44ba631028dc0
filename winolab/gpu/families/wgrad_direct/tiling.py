"""What a direct filter gradient on wgmma is cut into: columns that blocks share, or segments."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.algorithm import Problem, Tile
from winolab.device import Device
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.families.wgrad_direct.chunks import Columns, Shares
from winolab.gpu.families.wgrad_direct.config import DirectConfig, NarrowConfig, SplitConfig

TILE = Tile(1, 1)


@dataclass(frozen=True)
class Tiling:
    """One call: what is computed, by which config, on what device."""

    problem: Problem
    gradient: Gradient
    precision: str
    out_dtype: str
    config: DirectConfig
    device: Device


@dataclass(frozen=True)
class ColumnsTiling(Tiling):
    """A call by columns, which ``shares`` gives to blocks."""

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
