"""Ωα(n,r), filter gradients in FP32 on FFMA units: WinRS, sections 4 and 5.

One launch computes every segment's share of the sum; a second one adds the shares up. The segments
are ranges of the flat summation axis (gradient_scheduler.cuh): every number of them balances. Where
"winrs" is named, its own planner chooses a pair of kernels and cuts dy into boxes (boxes.cuh), and
each kernel is launched once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from operator import methodcaller

from winolab.algorithm import Tile
from winolab.arguments.words import plural
from winolab.gpu.families.reading import reading
from winolab.gpu.families.stages import as_fit
from winolab.gpu.families.wgrad import (
    POSITIONS,
    Gradient,
    Segments,
    choose,
    tiles,
)
from winolab.gpu.families.wgrad_ffma import launch
from winolab.gpu.families.wgrad_ffma.config import CONFIGS, EARLIER, MODULI, Config
from winolab.gpu.families.wgrad_ffma.cost import timing_of
from winolab.gpu.families.wgrad_ffma.source import paired_source, source
from winolab.gpu.families.wgrad_ffma.tiling import PartTiling, Tiling
from winolab.gpu.families.winrs import PairPlan, cuts, planned, summed
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.request import FallbackLaunches, Request, Sum
from winolab.ref.algorithms.winrs.kernels import TILES, Kernel


@dataclass(frozen=True)
class WgradFfmaPlan(Tiling, BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    predicted: float  # seconds, the sum of the buckets included
    direction: str = "backward_filter"
    precision: str = "fp32"
    simulated = "fp32"  # what the reference calls the arithmetic
    out_dtype = "float32"

    @property
    def tiles(self) -> tuple[Tile]:
        """Tiles of the gradient."""
        return (self.tile,)

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed."""
        g = self.gradient
        units = g.units(self.tile, self.pitch) * g.met / self.segments
        folds = max(1.0, units / self.fold)
        return (Sum(1.0, units / folds, folds),)

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel."""
        return str(Kernel(self.tile))

    def __str__(self) -> str:
        p, v = self.problem, self.config
        shared = v.shared_memory(self.tile)
        work_tiles = self.blocks * self.segments
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} fp32, points {self.points}",
                f"block      {v.bi} × {v.bo} input × output channels, {v.kc} units a stage",
                f"policies   {v}",
                f"grid       {plural(self.grid, 'block')} of {v.threads} threads, "
                f"{plural(work_tiles, 'work tile')} in {plural(self.segments, 'segment')}",
                f"memory     {shared} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of ``winolab_wgrad_ffma`` and ``winolab_reduce``."""
        return source(self.tile, self.points, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {
            "winolab_wgrad_ffma": self.config.shared_memory(self.tile),
            "winolab_reduce": 0,
        }

    @property
    def fallback_launches(self) -> FallbackLaunches:
        return self

    def launch(
        self,
        kernels: Kernels,
        a: View,
        b: View,
        out: View,
        workspace: int,
        index: int,
        wanted: int = 0,
    ) -> None:
        """Compute all groups on the current stream; ``wanted``: fallback.cuh's flags."""
        launch.launch(self, kernels, a, b, out, workspace, wanted)


@dataclass(frozen=True)
class WinrsPlan(PairPlan):
    """WinRS's own plan in FP32."""

    parts: tuple[PartTiling, ...]

    entry = "winolab_wgrad_ffma"
    simulated = "fp32"  # what the reference calls the arithmetic
    out_dtype = "float32"

    @property
    def config(self) -> Config:
        """The first kernel's."""
        return self.parts[0].config

    def source(self) -> str:
        """The translation unit of each kernel, and of ``winolab_reduce``."""
        return paired_source([(k.tile, k.points, k.config) for k in self.parts])

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch_pair(self.parts, kernels, a, b, out, workspace)


def plans(request: Request) -> Iterator[WgradFfmaPlan | WinrsPlan]:
    """WinRS's plan where that is named, else every tile and block shape that can run.

    Raises ValueError where none can, and says why."""
    if request.algorithm and request.algorithm.kind == "winrs":
        yield _winrs(request, Gradient.of(request.problem))
    else:
        yield from flat_plans(request)


def flat_plans(request: Request) -> Iterator[WgradFfmaPlan]:
    """Every tile and block shape, in segments that are ranges of the flat sum."""
    gradient = Gradient.of(request.problem)
    for tile in tiles(gradient, request.algorithm, (*TILES["fp32"], *_moduli(request))):
        config = request.config_of(Config)
        for pitch in gradient.pitches(tile, config.wrap if config else None):
            for shape in _shapes(request, gradient, tile, pitch):
                yield _plan(request, gradient, tile, shape, pitch)


def _moduli(request: Request) -> tuple[Tile, ...]:
    """The tile with moduli beyond points that is named, if one is. Raises ValueError where no block
    has its states."""
    algorithm = request.algorithm
    if algorithm is None or algorithm.kind != "omega" or algorithm.tiles[0].minimal:
        return ()
    (tile,) = algorithm.tiles
    if tile.alpha in MODULI and request.device.large_blocks:
        return (tile,)
    states = ", ".join(map(str, sorted(MODULI)))
    raise ValueError(
        f"{algorithm}: on FFMA units tiles with moduli have {states} states, on compute capability "
        "9.0 and 10.0; use precision 'fp32_split', or omega:8:3:6"
    )


def _shapes(request: Request, g: Gradient, tile: Tile, pitch: int) -> Iterator[Config]:
    """The block shapes that fit the device, for rows of so many positions."""
    config, aligned, device = request.config_of(Config), request.aligned, request.device
    shapes = CONFIGS | MODULI if device.large_blocks else EARLIER
    if config and config.leaves_out(tile):
        raise ValueError(
            f"{plural(config.warps, 'warp')} do not have equal shares of the states of {tile} in a "
            "block; name a config that has as many consumers as it has states"
        )
    for shape in (config,) if config else shapes[tile.alpha]:
        size = methodcaller("shared_memory", tile)
        if shape := as_fit(shape, size, device.shared_memory):
            yield replace(
                shape,
                wrap=int(pitch % tile.r > 0),
                vector=int(_whole(aligned, g.channels, shape.ci)
                           and _whole(aligned, g.out_channels, shape.co)),
                dwvec=2 if _whole(aligned, g.channels, 2) else 1,
            )  # fmt: skip


def _winrs(request: Request, g: Gradient) -> WinrsPlan:
    """What WinRS's Algorithms 1 and 2 decide, on the fastest predicted block shapes.

    Sums are not put aside in between (FOLDS): the paper's segments are short enough.
    """
    device = request.device
    asked = request.config_of(Config)  # of units that run on there are none here
    made = planned(request, request.workspace_limit)
    parts, total = [], summed(made, g)
    for cut in cuts(made):
        tile, pitch, segments = cut.kernel.tile, cut.pitch, cut.segments
        units = g.units(tile, pitch * cut.count)
        timed = [
            (t.seconds(units, segments), t, v)
            for v in ([] if asked and asked.wrap else _shapes(request, g, tile, pitch))
            for t in [timing_of(device, g, tile, v, pitch)]
        ]
        if not timed:
            raise ValueError(f"no block shape of {cut.kernel} fits {device.name}; name direct")
        seconds, timing, config = min(timed, key=lambda found: found[0])
        total += seconds
        part = PartTiling(
            request.problem,
            g,
            tile,
            request.points_of(tile),
            config,
            device,
            pitch,
            segments,
            timing.blocks,
            config.state_blocks * min(timing.slots, timing.blocks * segments),
            POSITIONS,
            made.workspace,
            *astuple(cut.boxes),
        )
        parts.append(part)
    return WinrsPlan(tuple(parts), made.segment_shape, total)


def _whole(aligned: bool, channels: int, vector: int) -> bool:
    return aligned and channels % vector == 0


def _plan(request: Request, g: Gradient, tile: Tile, v: Config, pitch: int) -> WgradFfmaPlan:
    device, limit = request.device, request.workspace_limit
    count = request.algorithm.segments if request.algorithm else None
    timing = timing_of(device, g, tile, v, pitch)
    segments: Segments = choose(g, g.units(tile, pitch), timing, limit, count=count)
    return WgradFfmaPlan(
        request.problem,
        g,
        tile,
        request.points_of(tile),
        v,
        device,
        pitch,
        segments.count,
        timing.blocks,
        v.state_blocks * min(timing.slots, timing.blocks * segments.count),
        timing.fold,
        segments.workspace,
        reading(request.problem, "fp32", device, segments.seconds),
    )
