"""Ωα(n,r), filter gradients in FP32 on FFMA units: WinRS, sections 4 and 5.

One launch computes every segment's share of the sum; a second one adds the shares up. The segments
are ranges of the flat summation axis (gradient_scheduler.cuh): every number of them balances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.algorithm import Tile
from winolab.gpu.families.wgrad import (
    Gradient,
    Segments,
    choose,
    tiles,
)
from winolab.gpu.families.wgrad_ffma import launch
from winolab.gpu.families.wgrad_ffma.config import CONFIGS, EARLIER, THREADS, Config
from winolab.gpu.families.wgrad_ffma.cost import timing_of
from winolab.gpu.families.wgrad_ffma.source import source
from winolab.gpu.families.wgrad_ffma.tiling import Tiling
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.request import FallbackLaunches, Request, Sum
from winolab.ref.algorithms.winrs.kernels import TILES

ARCHITECTURE = (8, 0)  # mbarriers


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
        alpha = 2 if self.tile.alpha == 1 else self.tile.alpha
        return f"Ω{alpha}({self.tile.n},{self.tile.r})"

    def __str__(self) -> str:
        p, v = self.problem, self.config
        shared = v.shared_memory(self.tile.alpha)
        work_tiles = self.blocks * self.segments
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} fp32, points {self.points}",
                f"block      {v.bi} × {v.bo} input × output channels, {v.kc} units a stage",
                f"policies   {v}",
                f"grid       {self.grid} blocks of {THREADS} threads, {work_tiles} work tiles in "
                f"{self.segments} segments",
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
            "winolab_wgrad_ffma": self.config.shared_memory(self.tile.alpha),
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


def plans(request: Request) -> Iterator[WgradFfmaPlan]:
    """Every tile and block shape that can run. Raises ValueError where none can, and says why."""
    config, aligned, device = request.config_of(Config), request.aligned, request.device
    if device.compute_capability < ARCHITECTURE:
        raise request.unfit("the kernels need {}.{} or later".format(*ARCHITECTURE))
    gradient = Gradient.of(request.problem)
    shapes = CONFIGS if device.large_blocks else EARLIER
    for tile in tiles(gradient, request.algorithm, TILES["fp32"]):
        for shape in (config,) if config else shapes[tile.alpha]:
            while shape.shared_memory(tile.alpha) > device.shared_memory and shape.stages > 2:
                shape = replace(shape, stages=shape.stages - 1)
            if shape.shared_memory(tile.alpha) > device.shared_memory:
                continue
            for pitch in (gradient.whole_pitch(tile), gradient.wrapped_pitch(tile)):
                if pitch is None or (config and bool(config.wrap) != (pitch % tile.r > 0)):
                    continue
                made = replace(
                    shape,
                    wrap=int(pitch % tile.r > 0),
                    vector=int(_whole(aligned, gradient.channels, shape.ci)
                               and _whole(aligned, gradient.out_channels, shape.co)),
                    dwvec=2 if _whole(aligned, gradient.channels, 2) else 1,
                )  # fmt: skip
                yield _plan(request, gradient, tile, made, pitch)


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
        segments.seconds,
    )
