"""Fused Ωα(n,r) on mma.sync, filter gradients in FP16 and BF16: WinRS, sections 4 and 5.

x and dy are transformed inside the block, so that the workspace is the buckets of segments alone.
One launch computes every segment's share of the sum; a second one adds the shares up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import methodcaller

from winolab.algorithm import FUSED, FUSED_FP16, Algorithm, Tile
from winolab.gpu.families.stages import as_fit
from winolab.gpu.families.wgrad import Gradient, choose, tiles
from winolab.gpu.families.wgrad_mma import launch
from winolab.gpu.families.wgrad_mma.config import CONFIGS, EARLIER, FP16_SUMS, Config
from winolab.gpu.families.wgrad_mma.cost import timing_of
from winolab.gpu.families.wgrad_mma.source import source
from winolab.gpu.families.wgrad_mma.tiling import SCALING, Tiling, first
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.request import Request, Sum
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winrs.kernels import TILES, Kernel

ARCHITECTURE = (8, 0)  # mbarriers, m16n8k16
WGMMA = (9, 0)  # has it, and no other compute capability
# What a block of eight warps divides; the paper's six are taken without being named.
NAMED = tuple(t for t in TILES["fp32"] if t != DIRECT)
PAPER = tuple(t for t in TILES["fp16"] if t != DIRECT)


@dataclass(frozen=True)
class WgradMmaPlan(Tiling, BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    predicted: float  # seconds, the sum of the buckets included
    direction: str = "backward_filter"

    scaling = SCALING

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        return self.config.simulated(self.precision)

    @property
    def tiles(self) -> tuple[Tile]:
        """Tiles of the gradient."""
        return (self.tile,)

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed."""
        g = self.gradient
        return (Sum(1.0, g.units(self.tile, self.pitch) * g.met / self.segments),)

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel."""
        return str(Kernel(self.tile))

    def __str__(self) -> str:
        p, v = self.problem, self.config
        work_tiles = self.blocks * self.segments
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} {self.precision}, fused, points {self.points}",
                f"block      {v.bi} × {v.bo} input × output channels, {v.kc} units a stage",
                f"policies   {v}",
                f"grid       {self.grid} blocks of {v.threads} threads, {work_tiles} work tiles in "
                f"{self.segments} segments",
                f"memory     {v.shared_memory(self.tile.alpha)} B shared, {self.workspace} B "
                "workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of ``winolab_wgrad_mma`` and ``winolab_reduce``."""
        return source(self.tile, self.points, self.precision, self.out_dtype, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {
            "winolab_wgrad_mma": self.config.shared_memory(self.tile.alpha),
            "winolab_reduce": 0,
        }

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch(self, kernels, a, b, out, workspace)


def plans(request: Request) -> Iterator[WgradMmaPlan]:
    """Every tile and block shape that can run. Raises ValueError where none can, and says why."""
    device, algorithm = request.device, request.algorithm
    if device.compute_capability < ARCHITECTURE:
        raise request.unfit("the Tensor Core kernels need {}.{} or later".format(*ARCHITECTURE))
    if algorithm and algorithm.kind == "direct":
        raise ValueError("fused omega transforms; direct products have kernels of their own")
    g = Gradient.of(request.problem)
    named = algorithm is not None and algorithm.kind == "omega"
    for tile in tiles(g, algorithm, NAMED if named else PAPER, (FUSED, FUSED_FP16)):
        for shape in _shapes(request, tile, algorithm):
            size = methodcaller("shared_memory", tile.alpha)
            if shape := as_fit(shape, size, device.shared_memory):
                yield from _plans(request, g, tile, shape)


def near(request: Request) -> Iterator[WgradMmaPlan]:
    """What can be picked of a request that does not say how: on 9.0, where direct products on wgmma
    are faster at every width (docs/notes/042), nothing."""
    if request.device.compute_capability != WGMMA:
        yield from plans(request)


def _shapes(request: Request, tile: Tile, algorithm: Algorithm | None) -> tuple[Config, ...]:
    config, device = request.config_of(Config), request.device
    sums = algorithm is not None and algorithm.variant == FUSED_FP16
    if request.precision != "fp16" and (sums or (config and config.sums == 16)):
        raise ValueError(f"sums in FP16 are those of fp16, not of {request.precision}")
    if config:
        return (config,)
    shapes = CONFIGS if device.large_blocks else EARLIER
    if sums:
        usual, shape = shapes[tile.alpha][0], FP16_SUMS[tile.alpha]
        names = ("producers", "consumer_registers", "producer_registers")
        largest = replace(shape, **{name: getattr(usual, name) for name in names})
        return (largest, *(replace(v, sums=16) for v in shapes[tile.alpha]))
    return shapes[tile.alpha]


def _plans(request: Request, g: Gradient, tile: Tile, shape: Config) -> Iterator[WgradMmaPlan]:
    """The plans of a block shape: rows of whole units, and units that run on."""
    pairs = [request.aligned and c % 2 == 0 for c in (g.channels, g.out_channels)]
    for pitch in g.pitches(tile, shape.wrap if request.config else None):
        wrap, vector, dwvec = int(pitch % tile.r > 0), int(all(pairs)), 2 if pairs[0] else 1
        yield _plan(request, g, tile, replace(shape, wrap=wrap, vector=vector, dwvec=dwvec), pitch)


def _plan(request: Request, g: Gradient, tile: Tile, v: Config, pitch: int) -> WgradMmaPlan:
    device, limit, written = request.device, request.workspace_limit, request.written
    count = request.algorithm.segments if request.algorithm else None
    timing = timing_of(device, g, tile, v)
    units = g.units(tile, pitch)
    segments = choose(g, units, timing, limit, first=first(written), count=count)
    return WgradMmaPlan(
        request.problem,
        g,
        tile,
        request.points_of(tile),
        request.precision,
        written,
        v,
        device,
        pitch,
        segments.count,
        timing.blocks,
        min(timing.slots, timing.blocks * segments.count),
        segments.workspace,
        segments.seconds,
    )
