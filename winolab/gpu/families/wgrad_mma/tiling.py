"""What a call of fused Ωα(n,r) on mma.sync is cut into: blocks, segments, its workspace."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.algorithm import Problem, Tile
from winolab.device import Device
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.families.wgrad_mma.config import Config
from winolab.gpu.families.winrs import Boxes


@dataclass(frozen=True)
class Tiling:
    """One filter gradient: what is computed, by which config, on what grid."""

    problem: Problem
    gradient: Gradient
    tile: Tile
    points: str
    precision: str
    out_dtype: str
    config: Config
    device: Device
    pitch: int  # positions of a row of dy on the summation axis
    segments: int
    blocks: int  # of a segment
    grid: int  # blocks launched: they walk over those of all segments
    workspace: int  # bytes: the buckets of the segments that dw itself is not

    @property
    def first(self) -> bool:
        """Whether dw, in FP32, is the first segment's bucket."""
        return first(self.out_dtype)


@dataclass(frozen=True)
class PartTiling(Boxes, Tiling):
    """The segments of one kernel of WinRS's pair."""


def first(out_dtype: str) -> bool:
    """Whether dw of that type can be a bucket."""
    return out_dtype == "float32"
