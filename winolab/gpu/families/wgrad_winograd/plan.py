"""Ωα(n,r), filter gradients on Tensor Cores: what tiles, blocks and chunks can run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod

from winolab.algorithm import Tile
from winolab.arguments.words import plural
from winolab.gpu.families.wgrad import Gradient, narrow_rows, of_this_gpu
from winolab.gpu.families.wgrad_winograd import cost, launch
from winolab.gpu.families.wgrad_winograd.config import CONFIGS, MMA_CONFIGS, Config
from winolab.gpu.families.wgrad_winograd.source import accurate, source
from winolab.gpu.families.wgrad_winograd.tiling import SCALING, Tiling, rounded
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import check_unit, three
from winolab.gpu.planner.fallback import FLAGS
from winolab.gpu.planner.request import Request, Sum
from winolab.ref.algorithms.winrs.kernels import Kernel
from winolab.ref.error.metrics import error_ratio

# Minimal tiles whose error ref.error.metrics.error_ratio admits; any other with alpha up to 16 runs
# where it is named.
ADMITTED = (
    *(Tile(a + 1 - r, r) for a in (4, 6, 7, 8, 9) for r in range(2, a)),
    *(Tile(6, 5), Tile(5, 6)),
)
# Tiles with more states than n + r - 1, which err a third to a tenth of what minimal ones do: the
# record table's, exchanged from the forward tiles that nested has (families/nested/tiles.py), and
# F(7, 6).
MODULI = {
    Tile(3, 6, 9): "0,3/4,-3/4,4/3,-4/3,inf,x^2+1",
    Tile(3, 6, 10): "0,1,-1,inf,x^2+x+1,x^2-x+1",
    Tile(5, 6, 12): "0,3/4,-3/4,4/3,-4/3,inf,x^2+x+1,x^2-x+1",
    Tile(7, 6, 15): "0,3/4,-3/4,5/4,-5/4,inf,x^2+1,x^2+x+1,x^2-x+1",
    Tile(9, 8, 19): "0,1/2,-1/2,3/4,-3/4,5/4,-5/4,2,-2,inf,x^2+1,x^2+x+1,x^2-x+1",
}
MOST_INPUTS, MOST_STATES = 16, 24  # of a named tile
LONGEST_ROW = 512  # positions: taps of neighbouring rows shall meet in L2
SUMS = 24 << 20  # bytes of the sums of all states that a slice of taps may have
PROMISING = 1.5  # times the fewest multiply-adds of any tile, for a tile to be considered
SHARE = 4  # a workspace without a limit takes at most such a part of the device's memory
MOST_CHUNKS = 4  # chunks, after which more are slower
# Steps of a segment's sum of split products, times the tile's noise gain: beyond it, FP32's
# roundings of the sum make the error larger than FFMA's Ω8 has it (3.3e-6 on zero-mean data; on an
# H100 split's is 1.85e-8 √(steps · gain)). Other tiles' gains count as these at most.
LONGEST_SUM, LARGEST_GAIN = 30000, 96
# Segments of split products at alpha 16 where rows are narrow: outputs are so small against their
# states that one FP32 sum of these loses 1.9e-6 on U[0, 1], four 9e-7 (MARE, simulated), seven 8e-7
# in three times the time (an H100, 7² × 1024).
NARROW_SEGMENTS = 4


@dataclass(frozen=True)
class WgradWinogradPlan(Tiling, BasePlan):
    """One filter gradient: what is computed, by which kernels, in which chunks, at what cost."""

    predicted: float = 0.0  # seconds
    direction: str = "backward_filter"

    scaling = SCALING

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic; where AT is in FP64, it is taken for FP32."""
        return self.config.simulated(self.precision)

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed."""
        rows = self.problem.batch * prod(self.problem.output[:-1]) * Gradient.of(self.problem).met
        return (Sum(1.0, rows * self.units / self.segments),)

    @property
    def tiles(self) -> tuple[Tile]:
        return (self.tile,)

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel."""
        return str(Kernel(self.tile))

    @property
    def accurate(self) -> bool:
        """Whether its error is no larger than that of the FFMA kernels."""
        return self.parts == 1 or accurate(self.tile, self.points)

    def __str__(self) -> str:
        p, v = self.problem, self.config
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, points {self.points}",
                f"block      {v.bm} × {v.bn} channels of one state, {v.ks} positions a stage",
                f"policies   {v}",
                f"chunks     {cost.chunk_of(self).count} of {plural(self.images, 'image')} × "
                f"{plural(self.rows, 'row')}, images by {self.batch}",
                f"segments   {self.segments}, {plural(-(-self.taps // self.slice), 'slice')} of "
                "taps",
                f"memory     {v.shared_memory(self.parts)} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of the kernels."""
        return source(self.tile, self.points, self.precision, self.out_dtype, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {
            "winolab_wgrad_winograd_transform": 0,
            f"winolab_wgrad_winograd_{self.config.products}": self.config.shared_memory(self.parts),
            "winolab_wgrad_winograd_losses": 0,
            "winolab_wgrad_winograd_finish": 0,
        }

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch(self, kernels, a, b, out, workspace)


def plans(request: Request) -> Iterator[WgradWinogradPlan]:
    """The fastest chunks and segments of every tile and block shape.

    Raises ValueError where none can run, and says why.
    """
    problem, device, precision = request.problem, request.device, request.precision
    parts = 2 if precision == "fp32_split" else 1
    config, workspace_limit = request.config_of(Config), request.workspace_limit
    written = request.stored if parts == 2 else request.written
    shapes = (config,) if config else _shapes(request, parts)
    if config and config.sums == 16 and (precision != "fp16" or config.wgmma):
        raise ValueError(f"sums in FP16 are those of fp16 on mma.sync, not of {precision}")
    check_unit(problem)
    if request.algorithm and request.algorithm.kind == "winrs":
        raise ValueError(
            "winrs is the paper's plan, of fused kernels on FFMA units or of 16 bits; in "
            f"{precision} name omega, such as omega:8:3:6, or direct"
        )
    wide = 2 if parts == 2 else 4
    channels = problem.in_channels, problem.out_channels
    vectors = request.aligned and all(c // problem.groups % wide == 0 for c in channels)
    limit = device.memory // SHARE if workspace_limit is None else workspace_limit
    count = request.algorithm.segments if request.algorithm else None
    found, short = False, []
    for tile, points in _tiles(request):
        for shape in shapes:
            base = WgradWinogradPlan(
                problem, tile, points, precision, written,
                replace(shape, xvec=wide if vectors else 1), device, problem.batch,
                three(problem.output, 1)[1], 1, 1, 1,
            )  # fmt: skip
            best = _best(base, limit, 1 if workspace_limit is None else MOST_CHUNKS, count)
            if isinstance(best, int):
                short.append(best)
            else:
                found = True
                yield best
    if not found:
        otherwise = "precision 'fp32_ffma'" if parts == 2 else "arrays in float32"
        raise ValueError(
            f"{precision} kernels on Tensor Cores need a workspace of {min(short)} B at least; the "
            f"limit is {limit} B: raise it, or use {otherwise}"
        )


def _shapes(request: Request, parts: int) -> list[Config]:
    """The block shapes that the device can run."""
    device = request.device
    shapes = CONFIGS if device.wgmma else MMA_CONFIGS
    return [v for v in shapes[parts] if v.shared_memory(parts) <= device.shared_memory]


def _tiles(request: Request) -> Iterator[tuple[Tile, str]]:
    """Tiles and their points: the algorithm's, or direct products and what the planner may take."""
    problem, algorithm = request.problem, request.algorithm
    of_this_gpu(algorithm)
    width = problem.filter[-1]
    scaled = algorithm is not None and algorithm.scaling
    if algorithm is None:
        yield Tile(1, 1), "best"
        yield from _unasked(request)
    elif algorithm.kind == "direct":
        yield Tile(1, 1), "best"
    elif algorithm.variant:
        raise ValueError(f"{algorithm}: these kernels transform in a launch of their own")
    elif algorithm.kind != "omega" or scaled:
        raise ValueError(
            "filter gradients on Tensor Cores are omega or direct, whose transforms hold a "
            f"scaling of their own ({SCALING}), not {algorithm}"
        )
    else:
        (tile,) = algorithm.tiles
        if tile.inputs > MOST_INPUTS or tile.alpha > MOST_STATES:
            raise ValueError(
                f"{algorithm}: the CUDA kernels have n + r - 1 up to {MOST_INPUTS}, in at most "
                f"{MOST_STATES} states"
            )
        if width % tile.n:
            raise ValueError(
                f"{algorithm} computes {plural(tile.n, 'tap')}; the filter is {width} wide"
            )
        yield tile, request.points_of(tile)


def _unasked(request: Request) -> Iterator[tuple[Tile, str]]:
    """Tiles that nobody names, whose error is admitted: minimal ones that multiply not much more
    than the fewest of them, and those in more states that multiply no more than these."""
    width, outputs = request.problem.filter[-1], request.problem.output[-1]
    work = {
        tile: _work(tile, width, outputs)
        for tile in (*ADMITTED, *MODULI)
        if tile.n <= max(2, width)
        and error_ratio(tile, MODULI.get(tile, "best")) <= request.admissible
    }
    least = min((w for tile, w in work.items() if tile.minimal), default=math.inf)
    for tile, multiplied in work.items():
        if multiplied <= (PROMISING if tile.minimal else 1) * least:
            yield tile, MODULI.get(tile, "best")


def _work(tile: Tile, width: int, outputs: int) -> int:
    """Multiply-adds of a row of weights and one of outputs, for a pair of channels."""
    return tile.alpha * -(-width // tile.n) * -(-outputs // tile.r)


@lru_cache(maxsize=4096)
def _batch(units: int, images: int, granule: int) -> int:
    """Images of a row: few, so that neighbouring rows stay in L2, but enough to fill its pitch."""
    found, best = 1, 0.0
    for batch in range(1, images + 1):
        pitch = -(-units * batch // granule) * granule
        if batch > 1 and pitch > LONGEST_ROW:
            break
        used = images * units / (-(-images // batch) * pitch)
        if used > 1.02 * best:
            found, best = batch, used
    return found


def _best(
    base: WgradWinogradPlan, limit: int, enough: int, count: int | None
) -> WgradWinogradPlan | int:
    """The fastest chunk, number of segments and slice of taps within the limit, or, where there is
    none, the bytes of the smallest.

    Once something fits, no more than ``enough`` chunks are tried. ``count`` fixes the segments.
    """
    v, alpha, d, p = base.config, base.tile.alpha, base.device, base.problem
    (_, out_height, _), (tiles_m, tiles_n) = base.sizes[1], base.blocks
    (m, n), taps, parts = base.padded, base.taps, base.parts
    granule = v.ks if parts == 2 else 16
    gain = (
        min(error_ratio(base.tile, base.points) ** 2, LARGEST_GAIN) if base.checks_accuracy else 0
    )
    narrow = 0 if base.accurate or not narrow_rows(base.tile, p.output[-1]) else NARROW_SEGMENTS
    slots = d.multiprocessors * v.resident
    sums_tap = 4 * alpha * m * n
    best, chosen, needed = math.inf, None, []
    for images, rows in _chunks(p.batch, out_height):
        batch = _batch(base.units, images, granule)
        chunk = cost.chunk(base, images, rows, batch)
        sides = list(chunk.sides)
        if parts == 2:
            sides += [side // (64 * alpha * v.ks) for side in sides]
        if base.checks_accuracy:
            sides += [FLAGS, *(64 * side for side in sides[2:]), 8 * (m + n)]
        steps = -(-chunk.positions // v.ks)
        least = max(narrow, math.ceil(chunk.count * steps * gain / LONGEST_SUM))
        slices = {taps, max(1, min(taps, SUMS // sums_tap))} if chunk.count == 1 else {taps}
        for slice_, waves in product(slices, (1, 2, 3, 4)):
            work_tiles = tiles_m * tiles_n * alpha * slice_
            filling = min(slots * waves // work_tiles, 64, steps // 4)
            filling = max(1, filling, min(least, steps))
            segments = count or filling
            workspace = sum(map(rounded, (*sides, segments * sums_tap * slice_)))
            if workspace > limit:
                needed.append(workspace)
                continue
            seconds = cost.seconds(base, chunk, segments, slice_)
            if seconds < best:
                best, chosen = seconds, (images, rows, batch, segments, slice_)
        if chosen and chunk.count >= enough:
            break
    if chosen is None:
        return min(needed)
    images, rows, batch, segments, slice_ = chosen
    return replace(
        base, images=images, rows=rows, batch=batch, segments=segments, slice=slice_,
        predicted=best,
    )  # fmt: skip


def _chunks(batch: int, rows: int) -> Iterator[tuple[int, int]]:
    """Images and rows of a chunk: all, then halved again and again."""
    yield batch, rows
    while batch > 1:
        batch = -(-batch // 2)
        yield batch, rows
    while rows > 1:
        rows = -(-rows // 2)
        yield batch, rows
