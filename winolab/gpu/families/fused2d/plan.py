"""Which configs of the fused kernel run a request of two dimensions and 3 × 3 taps: F(2×2, 3×3) of
forward and backward data, F(3×3, 2×2) of filter gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from winolab.algorithm import Algorithm, Tile, tiled
from winolab.arguments.epilogue import Epilogue
from winolab.arguments.words import plural
from winolab.gpu.families.fused2d import launch
from winolab.gpu.families.fused2d.config import KC, Config, configs, fitted, splits
from winolab.gpu.families.fused2d.cost import seconds
from winolab.gpu.families.fused2d.layouts import TILES
from winolab.gpu.families.fused2d.source import GRADIENT_TILE, TILE, source
from winolab.gpu.families.fused2d.tiling import Tiling
from winolab.gpu.params import MOST, MOST_BLOCKS, Kernels, View, uncounted
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import Correlation, check_unit, unserved, without_depth
from winolab.gpu.planner.request import Request, Sum
from winolab.ref.arithmetic.simulated import FFMA

__all__ = ["Config", "Fused2dPlan", "plans"]


@dataclass(frozen=True)
class Fused2dPlan(Tiling, BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    predicted: float = 0.0  # seconds, filter transform and sums of parts included
    precision: str = "fp32"
    epilogue: Epilogue | None = None

    @property
    def kernel(self) -> str:
        """The papers' name."""
        n, r = self.tile.n, self.tile.r
        return f"F({n}×{n},{r}×{r})"

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """Both dimensions'."""
        return self.tile, self.tile

    @property
    def simulated(self) -> str:
        """FP32, of numbers stored in 16 bits where the precision says so."""
        return FFMA.get(self.precision, self.precision)

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed; parts are added up compensated."""
        return (Sum(1.0, self.terms / self.split_k),) if self.gradient else ()

    @property
    def split_sums(self) -> tuple[tuple[float, int], ...]:
        """All results, in as many parts."""
        return ((1.0, self.split_k),)

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return tiled(self.tiles, self.points)

    def __str__(self) -> str:
        p, v = self.problem, self.config
        rows, columns = self.image
        block = f"{TILES} of {rows} × {columns} tiles an image, {KC} channels a stage"
        if self.gradient:
            block = f"{TILES} input channels, {KC} of {rows} × {columns} tiles an image a stage"
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision} on FFMA units, fused, points "
                f"{self.points}",
                f"block      {v.bm} channels × {block}",
                f"policies   {v}",
                f"grid       {plural(self.grid, 'block')} of {v.threads} threads, "
                f"{plural(self.work_tiles, 'work tile')} in {plural(self.split_k, 'part')} of the "
                "sum",
                f"memory     {v.shared_memory} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def with_epilogue(self, epilogue: Epilogue) -> Self:
        """The plan whose kernels apply it as they store y."""
        return replace(self, epilogue=epilogue)

    def source(self) -> str:
        """The translation unit of ``winolab_fused2d_filter``, ``winolab_fused2d`` and, of parts,
        ``winolab_reduce``."""
        types = self.dtype, self.out_dtype
        return source(self.points, self.config, types, self.gradient, self.epilogue)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        found = {"winolab_fused2d_filter": 0, "winolab_fused2d": self.config.shared_memory}
        return found | ({"winolab_reduce": 0} if self.split_k > 1 else {})

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
        launch.run(self, kernels, a, None, prepared, out, workspace, early=False)


def plans(request: Request) -> Iterator[Fused2dPlan]:
    """Every config that can run. Raises ValueError where none can, and says why."""
    algorithm, device = request.algorithm, request.device
    gradient = request.direction == "backward_filter"
    tile = GRADIENT_TILE if gradient else TILE
    if algorithm and algorithm.kind != "winograd":
        return  # other families say what they run
    if gradient and request.precision == "fp32" and not (algorithm or request.config):
        return  # Ω takes half the time
    if algorithm and (algorithm.scaling or algorithm.tiles != (tile, tile)):
        raise unserved(algorithm)
    name = "fused F(3×3,2×2)" if gradient else "fused F(2×2,3×3)"
    request.need(device.compute_capability >= (9, 0), f"the {name} needs 9.0 or later")
    check_unit(request.problem)
    c = Correlation.of(request.problem, "forward" if gradient else request.direction)
    if c.filter != (1, 3, 3) or not without_depth(c) or c.empty or not c.channels:
        raise ValueError(f"the {name} has two dimensions and 3 × 3 taps")
    for config in configs(request, c):
        found = Fused2dPlan(
            request.direction, request.problem, c, request.points, config, device,
            request.dtype, request.stored, precision=request.precision,
        )  # fmt: skip
        yield from split(request, found, name)


def split(request: Request, whole: Fused2dPlan, name: str) -> Iterator[Fused2dPlan]:
    """The plan, and where it is faster, with its sum in parts; or in as many as are asked for.
    Raises ValueError for more than are counted."""
    device, asked = request.device, request.config_of(Config)
    counts = splits(whole.chunks, whole.work_tiles // whole.split_k, device.multiprocessors)
    if whole.config.split_k:
        counts = [min(whole.config.split_k, whole.chunks)]
    found = []
    for count in counts:
        config = replace(whole.config, split_k=count if count > 1 else 0)
        config = fitted(config, whole.correlation, request.direction, request.aligned)
        made = replace(whole, config=config)
        counted = made.tile_blocks * TILES + device.multiprocessors
        counted = max(counted, made.terms + KC, made.work_tiles + made.grid)
        if counted > MOST or made.filter_grid[1] > MOST_BLOCKS:
            raise uncounted(f"the number of tiles of the {name}", counted)
        found.append(replace(made, predicted=seconds(made)))
    limit = request.workspace_limit
    fit = [p for p in found if limit is None or p.workspace <= limit] or found[:1]
    best = min(fit, key=lambda p: p.predicted)
    if best is not found[0] and not asked:
        yield found[0]
    yield best
