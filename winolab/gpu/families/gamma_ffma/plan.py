"""Γα(n,r) and implicit GEMM in FP32 on FFMA units.

Forward and backward data of any shape; wider filters run in pieces of r taps. One launch transforms
the filter of a group into the workspace, the next one does everything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from winolab.algorithm import Algorithm, Tile
from winolab.arguments.epilogue import Epilogue
from winolab.gpu.families.clusters import clusters
from winolab.gpu.families.gamma_ffma import launch
from winolab.gpu.families.gamma_ffma.config import CONFIGS, MODULI, Config, configs
from winolab.gpu.families.gamma_ffma.cost import seconds
from winolab.gpu.families.gamma_ffma.source import source
from winolab.gpu.families.gamma_ffma.tiling import FILTER_BLOCK, Tiling, padded_outputs
from winolab.gpu.params import (
    MOST_BLOCKS,
    Kernels,
    Params,
    View,
)
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import Correlation, unserved
from winolab.gpu.planner.request import FallbackCorrelation, Request
from winolab.ref.error.metrics import ADMISSIBLE, error_ratio

ARCHITECTURE = (8, 0)  # mbarriers and asynchronous copies
# Widths r that each alpha serves, Im2col-Winograd's kernels; wider filters run in pieces of r.
WIDTHS = {4: range(2, 4), 6: range(2, 6), 8: range(2, 8), 16: range(7, 10)}


@dataclass(frozen=True)
class GammaFfmaPlan(Tiling, BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    predicted: float  # seconds, filter transform included
    precision: str = "fp32"
    epilogue: Epilogue | None = None
    out_dtype = "float32"

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        products = self.config.fold * self.config.kc
        return "fp32" + (f",accumulation=two_level:{products}" if products else "")

    def __str__(self) -> str:
        p, v = self.problem, self.config
        shared = v.shared_memory(self.tile.alpha)
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} fp32, points {self.points}",
                f"block      {v.bm} channels × {v.rows} rows × {v.bt // v.rows} tiles, "
                f"{v.kc} channels a stage",
                f"policies   {v}",
                f"grid       {self.grid} blocks of {v.threads} threads, "
                f"{self.work_tiles} work tiles, "
                f"{self.whole} of them whole",
                f"memory     {shared} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def with_epilogue(self, epilogue: Epilogue) -> Self | None:
        """The plan whose kernels apply it as they store y, unless that is in parts of the sum."""
        return None if self.config.partial else replace(self, epilogue=epilogue)

    def source(self) -> str:
        """The translation unit of ``winolab_gamma_ffma_filter`` and ``winolab_gamma_ffma``."""
        return source(self.tile, self.points, self.config, epilogue=self.epilogue)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {
            "winolab_gamma_ffma_filter": 0,
            "winolab_gamma_ffma": self.config.shared_memory(self.tile.alpha),
        }

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch(self, kernels, a, b, out, workspace)

    @property
    def prepared_size(self) -> int:
        """Bytes of the transformed filter, all groups: the whole workspace."""
        return self.workspace

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter."""
        launch.prepare(self, kernels, b, prepared)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a transformed filter."""
        launch.run(self, kernels, a, prepared, out, early=False)

    @property
    def fallback_correlation(self) -> FallbackCorrelation:
        return self

    def fallback_source(self) -> str:
        """The translation unit of ``winolab_gamma_ffma_fallback`` and of its filter's transform,
        which goes behind that of split products."""
        return source(self.tile, self.points, self.config, alone=False)

    def fallback_shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        shared = self.shared()
        return {
            "winolab_gamma_ffma_filter": 0,
            "winolab_gamma_ffma_fallback": shared["winolab_gamma_ffma"],
        }

    def fall_back(
        self, kernels: Kernels, scan: Params, x: View, w: View | None, prepared: int, y: View
    ) -> None:
        """Compute all groups where the flags ask for it: a launch a group scans x, transforms w,
        if there is one, and convolves."""
        launch.fall_back(self, kernels, scan, x, w, prepared, y)


def plans(request: Request) -> Iterator[GammaFfmaPlan]:
    """Every tile and block shape that can run. Raises ValueError where none can, and says why."""
    algorithm, device = request.algorithm, request.device
    if device.compute_capability < ARCHITECTURE:
        raise request.unfit("the kernels need {}.{} or later".format(*ARCHITECTURE))
    correlation = Correlation.of(request.problem, request.direction)
    shapes = [
        (tile, shape)
        for tile in _tiles(correlation, algorithm)
        for shape in configs(tile, correlation, request)
    ]
    if not shapes:
        raise ValueError(
            f"no block of {algorithm or 'any kernel'} fits {device.name}: its "
            f"{device.shared_memory} B of shared memory, or its registers; name another algorithm"
        )
    made = (_plan(request, correlation, tile, shape) for tile, shape in shapes)
    found = [p for p in made if max(p.filter_grid[1:]) <= MOST_BLOCKS]
    if not found:
        raise ValueError(
            f"a filter of {math.prod(correlation.filter)} taps and {correlation.channels} channels "
            f"takes more blocks than CUDA launches, {MOST_BLOCKS} for taps and as many for every "
            f"{FILTER_BLOCK} channels: cut the filter, and add up the results"
        )
    yield from found


def _tiles(correlation: Correlation, algorithm: Algorithm | None) -> tuple[Tile, ...]:
    width = correlation.filter[2]
    if algorithm is None:
        tiles = (Tile(a - r + 1, r) for a in WIDTHS for r in WIDTHS[a] if width % r == 0)
        return (Tile(1, 1), *(t for t in tiles if error_ratio(t) <= ADMISSIBLE))
    if algorithm.kind == "direct":
        return (Tile(1, 1),)
    if algorithm.kind != "gamma" or algorithm.scaling:
        raise unserved(algorithm)
    (tile,) = algorithm.tiles
    known = CONFIGS if tile.minimal else CONFIGS | MODULI
    if tile.alpha not in known:
        alphas = ", ".join(map(str, sorted(known)))
        raise ValueError(f"{algorithm}: the CUDA kernels have alpha {alphas}")
    if width % tile.r:
        raise ValueError(f"{algorithm} has {tile.r} taps; the filter is {width} wide")
    return (tile,)


def _plan(request: Request, correlation: Correlation, tile: Tile, config: Config) -> GammaFfmaPlan:
    device = request.device
    depth, height, width = correlation.output
    tiles_width = -(-width // tile.n)
    blocks_m = -(-correlation.out_channels // config.bm)
    blocks_row = -(-height // config.rows)
    columns = config.bt // config.rows
    work_tiles = blocks_m * blocks_row * -(-correlation.batch * depth * tiles_width // columns)
    slots = clusters(device, config.split_k)
    blocks = slots * config.split_k
    whole = work_tiles if config.split_k == 1 else work_tiles // blocks * blocks
    grid = min(whole, blocks) or config.split_k * min(work_tiles, slots)
    stages = math.prod(correlation.filter) // tile.r * -(-correlation.channels // config.kc)
    transformed = 4 * stages * tile.alpha * config.kc * padded_outputs(correlation, config)
    plan = GammaFfmaPlan(
        request.direction,
        request.problem,
        correlation,
        tile,
        request.points,
        config,
        device,
        grid,
        work_tiles,
        whole,
        tiles_width,
        blocks_row,
        transformed * correlation.groups,
        predicted=0.0,
    )
    return replace(plan, predicted=seconds(plan))
