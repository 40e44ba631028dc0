"""Fused Ωα(n,r) on mma.sync, filter gradients in FP16 and BF16: WinRS, sections 4 and 5.

x and dy are transformed inside the block, so that the workspace is the buckets of segments alone.
One launch computes every segment's share of the sum; a second one adds the shares up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from itertools import product
from operator import methodcaller

from winolab.algorithm import Algorithm, Tile
from winolab.arguments.variants import FUSED, FUSED_FP16
from winolab.arguments.words import plural
from winolab.gpu.codegen.emit import in_namespaces
from winolab.gpu.families.stages import as_fit
from winolab.gpu.families.wgrad import Gradient, choose, tiles
from winolab.gpu.families.wgrad_mma import launch
from winolab.gpu.families.wgrad_mma.config import CONFIGS, EARLIER, FP16_SUMS, Config
from winolab.gpu.families.wgrad_mma.cost import timing_of
from winolab.gpu.families.wgrad_mma.source import source
from winolab.gpu.families.wgrad_mma.tiling import PartTiling, Tiling, first
from winolab.gpu.families.winrs import PairPlan, cuts, planned, summed
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.request import Request, Sum
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winrs.kernels import TILES, Kernel
from winolab.ref.error.metrics import error_ratio

# What a block of eight warps divides; the paper's six are taken without being named.
NAMED = tuple(t for t in TILES["fp32"] if t != DIRECT)
PAPER = tuple(t for t in TILES["fp16"] if t != DIRECT)


@dataclass(frozen=True)
class WgradMmaPlan(Tiling, BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    predicted: float  # seconds, the sum of the buckets included
    direction: str = "backward_filter"

    @property
    def scaling(self) -> str | None:
        """What scales the transforms' rows."""
        return self.config.scaling

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
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, fused, points {self.points}",
                f"block      {v.bi} × {v.bo} input × output channels, {v.kc} units a stage",
                f"policies   {v}",
                f"grid       {plural(self.grid, 'block')} of {v.threads} threads, "
                f"{plural(work_tiles, 'work tile')} in {plural(self.segments, 'segment')}",
                f"memory     {v.shared_memory(self.tile)} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of ``winolab_wgrad_mma`` and ``winolab_reduce``."""
        return source(self.tile, self.points, self.precision, self.out_dtype, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {
            "winolab_wgrad_mma": self.config.shared_memory(self.tile),
            "winolab_reduce": 0,
        }

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch(self, kernels, a, b, out, workspace)


@dataclass(frozen=True)
class WinrsMmaPlan(PairPlan):
    """WinRS's own plan in 16 bits."""

    parts: tuple[PartTiling, ...]
    precision: str = "fp16"
    out_dtype: str = "float16"

    entry = "winolab_wgrad_mma"

    @property
    def scaling(self) -> str | None:
        """What scales the transforms' rows."""
        return self.config.scaling

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        return self.config.simulated(self.precision)

    @property
    def config(self) -> Config:
        """The first kernel's."""
        return self.parts[0].config

    def source(self) -> str:
        """The translation unit of each kernel, and of ``winolab_reduce``."""
        return in_namespaces(
            source(k.tile, k.points, self.precision, self.out_dtype, k.config, "boxes")
            for k in self.parts
        )

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch_pair(self.parts, kernels, a, b, out, workspace)


def plans(request: Request) -> Iterator[WgradMmaPlan | WinrsMmaPlan]:
    """WinRS's plan where that is named, else ``flat_plans``. Raises ValueError where none can run,
    and says why."""
    if request.algorithm and request.algorithm.kind == "winrs":
        yield _winrs(request, Gradient.of(request.problem))
    else:
        yield from flat_plans(request)


def flat_plans(request: Request) -> Iterator[WgradMmaPlan]:
    """Every tile and block shape that can run, in segments that are ranges of the flat sum."""
    algorithm, g = request.algorithm, Gradient.of(request.problem)
    if algorithm and algorithm.kind == "direct":
        raise ValueError("fused omega transforms; direct products have kernels of their own")
    named = algorithm is not None and algorithm.kind == "omega"
    for tile in tiles(g, algorithm, NAMED if named else PAPER, (FUSED, FUSED_FP16)):
        if not algorithm and error_ratio(tile) > request.admissible:
            continue
        shapes = (_fitting(request, g, tile, v) for v in _shapes(request, tile, algorithm))
        for shape in dict.fromkeys(filter(None, shapes)):
            yield from _plans(request, g, tile, shape)


def _winrs(request: Request, g: Gradient) -> WinrsMmaPlan:
    """What WinRS's Algorithms 1 and 2 decide, on the fastest predicted block shapes.

    The paper has even widths. What FP16's kernels cannot end goes to the shortest one, whose last
    columns are masked.
    """
    device, limit, bucket = request.device, request.workspace_limit, 4 * g.weights
    written = request.written
    if limit is not None and not first(written):
        limit = max(0, limit - bucket)  # dw itself is no bucket
    made = planned(request, limit, "fp16")
    if made.pair.first.tile == DIRECT:
        raise ValueError("winrs's plan of this gradient in 16 bits is direct products: name direct")
    count = len(made.segments)
    workspace = bucket * (count - first(written)) if count > 1 else 0
    parts, total = [], summed(made, g)
    for cut in cuts(made):
        tile = _ending(g.filter[2]) if cut.kernel.tile == DIRECT else cut.kernel.tile
        pitch = -(-cut.pitch // tile.r) * tile.r
        units = g.units(tile, pitch * cut.count)
        timed = [
            (t.seconds(units, cut.segments), t, v)
            for v in _vectors(request, g, tile)
            for t in [timing_of(device, g, tile, v)]
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
            request.precision,
            written,
            config,
            device,
            pitch,
            cut.segments,
            timing.blocks,
            min(timing.slots, timing.blocks * cut.segments),
            workspace,
            *astuple(cut.boxes),
        )
        parts.append(part)
    how = request.precision, written
    return WinrsMmaPlan(tuple(parts), made.segment_shape, total, "backward_filter", *how)


def _ending(taps: int) -> Tile:
    """The tile that computes so many taps from the fewest columns."""
    return min((t for t in PAPER if taps % t.n == 0), key=lambda t: (t.r, -t.n))


def _vectors(request: Request, g: Gradient, tile: Tile) -> Iterator[Config]:
    """The block shapes that fit the device, for rows of whole units."""
    pairs = _pairs(request, g)
    for shape in _shapes(request, tile, None):
        if fits := _fitting(request, g, tile, shape):
            yield replace(fits, wrap=0, vector=int(all(pairs)), dwvec=2 if pairs[0] else 1)


def _fitting(request: Request, g: Gradient, tile: Tile, shape: Config) -> Config | None:
    """The shape in as many stages as fit. Columns come ahead by eight channels or not at all."""
    if not (request.aligned and g.channels % 8 == g.out_channels % 8 == 0):
        shape = replace(shape, ahead=0)
    return as_fit(shape, methodcaller("shared_memory", tile), request.device.shared_memory)


def _pairs(request: Request, g: Gradient) -> list[bool]:
    """Whether channels of x and dw, and of dy, are loaded and stored in pairs."""
    return [request.aligned and c % 2 == 0 for c in (g.channels, g.out_channels)]


def near(request: Request) -> Iterator[WgradMmaPlan | WinrsMmaPlan]:
    """What can be picked of a request that does not say how: on 9.0, where direct products on wgmma
    are faster than tiles whose error is admitted unasked (docs/notes/042), nothing; a tolerance
    asks for every kernel."""
    if not request.device.wgmma:
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
        found = (largest, *(replace(v, sums=16) for v in shapes[tile.alpha]))
    else:
        found = shapes[tile.alpha]
    return tuple(_with_policies(request, found))


def _with_policies(request: Request, shapes: Iterable[Config]) -> Iterator[Config]:
    """The shapes, where blocks are large with columns brought ahead too, whose bits are the same;
    for a tolerance, which says whether that errs too much, with transforms in 16 bits too."""
    ahead = (0, 1) if request.device.large_blocks else (0,)
    half2 = (0, 1) if request.tolerance else (0,)
    for v, steps, pairs in product(shapes, ahead, half2):
        yield replace(v, ahead=steps, half2=pairs)


def _plans(request: Request, g: Gradient, tile: Tile, shape: Config) -> Iterator[WgradMmaPlan]:
    """The plans of a block shape: rows of whole units, and units that run on."""
    pairs = _pairs(request, g)
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
