"""Which configs of the fused F(2×2, 3×3) run a request: forward and backward data of two dimensions
and 3 × 3 taps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from winolab.algorithm import Algorithm, tiled
from winolab.arguments.epilogue import Epilogue
from winolab.gpu.families.fused2d import launch
from winolab.gpu.families.fused2d.config import KC, Config, configs
from winolab.gpu.families.fused2d.cost import seconds
from winolab.gpu.families.fused2d.layouts import TILES
from winolab.gpu.families.fused2d.source import TILE, source
from winolab.gpu.families.fused2d.tiling import Tiling
from winolab.gpu.params import MOST, MOST_BLOCKS, Kernels, View, uncounted
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import Correlation, unserved
from winolab.gpu.planner.request import Request

__all__ = ["Config", "Fused2dPlan", "plans"]

ARCHITECTURE = (9, 0)  # bulk copies


@dataclass(frozen=True)
class Fused2dPlan(Tiling, BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    predicted: float = 0.0  # seconds, filter transform included
    epilogue: Epilogue | None = None
    kernel = "F(2×2,3×3)"
    precision = simulated = "fp32"
    out_dtype = "float32"
    tiles = (TILE, TILE)

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return tiled(self.tiles, self.points)

    @property
    def prepared_size(self) -> int:
        """Bytes of the transformed filter, all groups: the whole workspace."""
        return self.workspace

    def __str__(self) -> str:
        p, v = self.problem, self.config
        rows, columns = self.image
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} fp32 on FFMA units, fused, points {self.points}",
                f"block      {v.bm} channels × {TILES} of {rows} × {columns} tiles an image, "
                f"{KC} channels a stage",
                f"policies   {v}",
                f"grid       {self.grid} blocks of {v.threads} threads, "
                f"{self.work_tiles} work tiles",
                f"memory     {v.shared_memory} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def with_epilogue(self, epilogue: Epilogue) -> Self:
        """The plan whose kernel applies it as it stores y."""
        return replace(self, epilogue=epilogue)

    def source(self) -> str:
        """The translation unit of ``winolab_fused2d_filter`` and ``winolab_fused2d``."""
        return source(self.points, self.config, self.epilogue)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_fused2d_filter": 0, "winolab_fused2d": self.config.shared_memory}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream.

        ``a`` and ``out`` may have a fifth stride, of channels, which is 1 without it.
        """
        launch.launch(self, kernels, a, b, out, workspace)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter."""
        launch.prepare(self, kernels, b, prepared)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a transformed filter."""
        launch.run(self, kernels, a, None, prepared, out, early=False)


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
        yield replace(found, predicted=seconds(found))
