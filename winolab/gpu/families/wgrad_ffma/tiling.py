"""What a call of Ωα(n,r) on FFMA units is cut into: blocks, segments, its workspace."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.algorithm import Problem, Tile
from winolab.device import Device
from winolab.gpu.families.wgrad import (
    Gradient,
)
from winolab.gpu.families.wgrad_ffma.config import Config
from winolab.gpu.families.winrs import Boxes


@dataclass(frozen=True)
class Tiling:
    """One filter gradient: what is computed, by which config, on what grid."""

    problem: Problem
    gradient: Gradient
    tile: Tile
    points: str
    config: Config
    device: Device
    pitch: int  # positions of a row of dy on the summation axis
    segments: int
    blocks: int  # of a segment
    grid: int  # blocks launched: they walk over those of all segments
    fold: int  # units after which a sum is put aside
    workspace: int  # bytes: the buckets of the segments after the first


@dataclass(frozen=True)
class PartTiling(Boxes, Tiling):
    """The segments of one kernel of WinRS's pair."""
