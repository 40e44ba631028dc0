"""Γα(n,r) and implicit GEMM in FP32 on FFMA units.

Forward and backward data of any shape; wider filters run in pieces of r taps. One launch transforms
the filter of a group into the workspace, the next one does everything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from winolab.algorithm import Algorithm, Problem, Tile
from winolab.arguments.epilogue import Epilogue
from winolab.arguments.words import plural
from winolab.device import Device
from winolab.gpu.codegen.emit import in_namespaces, named
from winolab.gpu.families.clusters import clusters
from winolab.gpu.families.correlation_params import counted
from winolab.gpu.families.gamma_ffma import launch
from winolab.gpu.families.gamma_ffma.config import CONFIGS, MODULI, Config, configs
from winolab.gpu.families.gamma_ffma.cost import seconds
from winolab.gpu.families.gamma_ffma.published import Published, part
from winolab.gpu.families.gamma_ffma.source import source
from winolab.gpu.families.gamma_ffma.tiling import FILTER_BLOCK, Tiling
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

    @property
    def split_sums(self) -> tuple[tuple[float, int], ...]:
        """Sums of work tiles that one block computes alone, and of those that clusters share."""
        alone = self.whole / self.work_tiles
        return (alone, 1), (1.0 - alone, self.config.split_k)

    def __str__(self) -> str:
        p, v = self.problem, self.config
        shared = v.shared_memory(self.tile.alpha)
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} fp32, points {self.points}",
                f"block      {v.bm} channels × {plural(v.rows, 'row')} × "
                f"{plural(v.bt // v.rows, 'tile')}, {v.kc} channels a stage",
                f"policies   {v}",
                f"grid       {plural(self.grid, 'block')} of {v.threads} threads, "
                f"{plural(self.work_tiles, 'work tile')}, "
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
        filter_ = {} if self.config.fused else {"winolab_gamma_ffma_filter": 0}
        return {**filter_, "winolab_gamma_ffma": self.config.shared_memory(self.tile.alpha)}

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
        """Transform the filter, unless blocks do: TypeError."""
        if self.config.fused:
            super().prepare(kernels, b, prepared, index)
        launch.prepare(self, kernels, b, prepared)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a transformed filter, unless blocks transform it: TypeError."""
        if self.config.fused:
            super().run(kernels, a, prepared, out, workspace, index)
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


@dataclass(frozen=True)
class SegmentedPlan(BasePlan):
    """Im2col-Winograd's boundary treatment: a kernel a segment of the width, none masked."""

    parts: tuple[GammaFfmaPlan, ...]  # the named tile's first
    starts: tuple[int, ...]  # of segments, along the width
    precision: str = "fp32"
    simulated = "fp32"  # what the reference calls the arithmetic
    out_dtype = "float32"

    @property
    def direction(self) -> str:
        """Every part's."""
        return self.parts[0].direction

    @property
    def problem(self) -> Problem:
        """The whole."""
        return self.parts[0].problem

    @property
    def device(self) -> Device:
        """Every part's."""
        return self.parts[0].device

    @property
    def tiles(self) -> tuple[Tile]:
        """The named tile; smaller ones, which err less, have the rest."""
        return self.parts[0].tiles

    @property
    def points(self) -> str:
        """The named tile's."""
        return self.parts[0].points

    @property
    def config(self) -> Config:
        """The named tile's."""
        return self.parts[0].config

    @property
    def kernel(self) -> str:
        """The paper's names of the kernels."""
        return " and ".join(p.kernel for p in self.parts)

    @property
    def workspace(self) -> int:
        """Bytes of every part's transformed filter."""
        return sum(p.workspace for p in self.parts)

    @property
    def prepared_size(self) -> int:
        """Bytes of the prepared filter, which is the whole workspace."""
        return self.workspace

    @property
    def predicted(self) -> float:
        """Seconds: parts run one after another."""
        return sum(p.predicted for p in self.parts)

    def __str__(self) -> str:
        where = (f"outputs {at} to {at + p.correlation.output[2] - 1} of the width"
                 for at, p in zip(self.starts, self.parts, strict=True))  # fmt: skip
        return "\n".join(f"segment    {at}\n{p}" for at, p in zip(where, self.parts, strict=True))

    def source(self) -> str:
        """The translation unit of every part, each in a namespace of its own."""
        return in_namespaces([p.source() for p in self.parts])

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {
            named(name, i): size
            for i, p in enumerate(self.parts)
            for name, size in p.shared().items()
        }

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        for p, own, at, y in self._calls(kernels, workspace, out):
            p.launch(own, a, b, y, at, index)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter for every part."""
        for p, own, at, _ in self._calls(kernels, prepared):
            p.prepare(own, b, at, index)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with transformed filters."""
        for p, own, at, y in self._calls(kernels, prepared, out):
            p.run(own, a, at, y, workspace, index)

    def _calls(
        self, kernels: Kernels, workspace: int, out: View | None = None
    ) -> Iterator[tuple[GammaFfmaPlan, Kernels, int, View]]:
        """Each part, its kernels by their own names, where its filter lies and its outputs."""
        y = out or View(0, (0, 0, 0, 0))
        for i, (p, start) in enumerate(zip(self.parts, self.starts, strict=True)):
            own = {name: kernels[named(name, i)] for name in p.shared()}
            yield p, own, workspace, replace(y, address=y.address + 4 * start * y.strides[3])
            workspace += p.workspace


def plans(request: Request) -> Iterator[GammaFfmaPlan | SegmentedPlan]:
    """A kernel of the paper's where the algorithm names one, else ``own_plans``.

    Raises ValueError where none can run, and says why."""
    if named := Published.of(request.algorithm):
        correlation, tiles = _asked(request)
        yield _published(request, correlation, tiles[0], named)
        return
    yield from own_plans(request)


def own_plans(request: Request) -> Iterator[GammaFfmaPlan]:
    """Every tile and block shape of our own that can run. Raises ValueError where none can."""
    algorithm, device = request.algorithm, request.device
    correlation, tiles = _asked(request)
    shapes = [(tile, shape) for tile in tiles for shape in configs(tile, correlation, request)]
    if not shapes:
        raise ValueError(
            f"no block of {algorithm or 'any kernel'} fits {device.name}: its "
            f"{device.shared_memory} B of shared memory, or its registers; name another algorithm"
        )
    made = (_plan(request, correlation, tile, shape) for tile, shape in shapes)
    found = [p for p in made if _launches(p)]
    if not found:
        raise _too_many(correlation)
    yield from counted(found)


def _asked(request: Request) -> tuple[Correlation, tuple[Tile, ...]]:
    """What is computed and by which tiles."""
    correlation = Correlation.of(request.problem, request.direction)
    return correlation, _tiles(correlation, request.algorithm)


def _launches(plan: GammaFfmaPlan) -> bool:
    """Whether CUDA launches as many blocks as transform the filter, where a launch does."""
    return plan.config.fused or max(plan.filter_grid[1:]) <= MOST_BLOCKS


def _too_many(correlation: Correlation) -> ValueError:
    return ValueError(
        f"a filter of {plural(math.prod(correlation.filter), 'tap')} and "
        f"{plural(correlation.channels, 'channel')} takes more blocks than CUDA launches, "
        f"{MOST_BLOCKS} for taps and as many for every {FILTER_BLOCK} channels: cut the filter, "
        "and add up the results"
    )


def _published(
    request: Request, correlation: Correlation, tile: Tile, named: Published
) -> GammaFfmaPlan | SegmentedPlan:
    """A kernel as the paper has it, or one a segment of the width."""
    cut = named.cut(correlation.output[2], tile)
    parts = []
    for segment in cut:
        outputs = part(correlation, segment, len(cut) > 1)
        config = named.config(segment.tile, outputs, request)
        made = _plan(request, outputs, segment.tile, config)
        points = request.points_of(segment.tile)
        parts.append(replace(made, points=points))
    if not all(map(_launches, parts)):
        raise _too_many(correlation)
    starts = tuple(segment.start for segment in cut)
    return parts[0] if len(parts) == 1 else SegmentedPlan(tuple(parts), starts)


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
        raise ValueError(f"{algorithm} has {plural(tile.r, 'tap')}; the filter is {width} wide")
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
    transformed = 4 * stages * tile.alpha * config.kc * blocks_m * config.bm
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
        0 if config.fused else transformed * correlation.groups,
        predicted=0.0,
    )
    return replace(plan, predicted=seconds(plan))
