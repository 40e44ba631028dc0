"""Which configs of the fused F(2×2, 3×3) run a request: forward and backward data of two dimensions
and 3 × 3 taps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from winolab.gpu.families.fused2d.config import Config, configs
from winolab.gpu.families.fused2d.cost import predicted
from winolab.gpu.families.fused2d.launch import Fused2dPlan
from winolab.gpu.families.fused2d.layouts import TILES
from winolab.gpu.families.fused2d.source import TILE
from winolab.gpu.params import MOST, MOST_BLOCKS, uncounted
from winolab.gpu.planner.correlation import Correlation, unserved
from winolab.gpu.planner.request import Request

__all__ = ["Config", "Fused2dPlan", "plans"]
ARCHITECTURE = (9, 0)  # bulk copies


def plans(request: Request) -> Iterator[Fused2dPlan]:
    """Every config that can run. Raises ValueError where none can, and says why."""
    algorithm, device = request.algorithm, request.device
    if algorithm and algorithm.kind != "winograd":
        return  # other families say what they run
    if algorithm and (algorithm.scaling or algorithm.tiles != (TILE, TILE)):
        raise unserved(algorithm)
    if device.compute_capability < ARCHITECTURE:
        raise request.unfit("the fused F(2×2,3×3) needs {}.{} or later".format(*ARCHITECTURE))
    c = Correlation.of(request.problem, request.direction)
    if c.filter != (1, 3, 3) or c.input[0] != 1 or c.empty or not c.channels:
        raise ValueError("the fused F(2×2,3×3) has two dimensions and 3 × 3 taps")
    points = request.points
    for config in configs(request, c):
        found = Fused2dPlan(request.direction, request.problem, c, points, config, device)
        counted = found.tile_blocks * TILES + device.multiprocessors
        if max(counted, found.work_tiles + found.grid) > MOST or found.filter_grid[1] > MOST_BLOCKS:
            raise uncounted("the number of tiles of the fused F(2×2,3×3)", counted)
        yield replace(found, predicted=predicted(found))
