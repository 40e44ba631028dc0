"""Direct forward and backward data: 16 bits and split FP32 on wgmma, any FP32 on FFMA units.

Nothing is transformed. Where images or filters are few, Γ's transforms take longer than the
products that they save; and products of 16-bit data are exact in FP32, so that little but the
result's rounding is lost. Any stride and dilation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from winolab.algorithm import Algorithm, Tile, direct
from winolab.arguments.epilogue import Epilogue
from winolab.arguments.words import plural
from winolab.gpu.families.axes import check_room, check_vectors, counted, flattened, row
from winolab.gpu.families.direct import launch
from winolab.gpu.families.direct.config import (
    FEWEST,
    FFMA_POSITIONS,
    FFMA_THREADS,
    POSITIONS,
    SPLIT_CHANNELS,
    Config,
    FfmaConfig,
    clusters_of,
    configs,
    fits,
    serves,
    split_configs,
)
from winolab.gpu.families.direct.cost import ffma_seconds, seconds, split_seconds
from winolab.gpu.families.direct.source import ffma_source, source, split_source
from winolab.gpu.families.direct.tiling import TILES, FfmaTiling, SplitTiling, Tiling
from winolab.gpu.families.direct_products import DirectCorrelation, intervals
from winolab.gpu.families.scale import found_source
from winolab.gpu.params import MOST, Kernels, Params, View, uncounted
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.fallback import checkable, unchecked
from winolab.gpu.planner.ranking import WORTH
from winolab.gpu.planner.request import (
    CheckedCorrelation,
    FallbackLaunches,
    Request,
)
from winolab.ref.arithmetic.split import Scale

VECTOR, SPLIT_VECTOR = 8, 4  # channels of a store; that pixels of split data are aligned to


@dataclass(frozen=True)
class DirectPlan(Tiling, DirectCorrelation):
    """One call of 16-bit data: what is computed, by which kernel, on what grid, at what cost."""

    def __str__(self) -> str:
        p, v, b = self.problem, self.config, self.box
        row = ", all positions of dense arrays as one row" if self.flat else ""
        workspace = f"{self.workspace} B" if self.workspace else "no"
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"block      {v.bm} channels × {plural(b.images, 'image')} × {b.height} × "
                f"{b.width} outputs, {plural(self.step_channels, 'channel')} a step{row}",
                f"policies   {v}",
                f"grid       {plural(self.grid, 'block')} of {self.threads} threads, "
                f"{plural(self.work_tiles, 'work tile')} of {plural(self.steps, 'step')}",
                f"memory     {max(self.shared().values())} B shared, {workspace} workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of ``winolab_direct``."""
        wide = self.out_dtype == "float32"
        c = self.correlation
        how = self.config, c.rotated, self.rest, not c.unit
        return source(self.precision, wide, *how, self.epilogue)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_direct": self.config.shared_memory}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch(self, kernels, a, b, out)


@dataclass(frozen=True)
class DirectSplitPlan(SplitTiling, DirectPlan):
    """One call of split data: x is split in registers, the filter's parts lie in the workspace."""

    checks_accuracy = True
    reads_filters_in_place = False

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """F(1, 1): products without transforms."""
        return TILES

    @property
    def split_sums(self) -> tuple[tuple[float, int], ...]:
        """Sums that the blocks of a cluster share."""
        return ((1.0, self.config.split_k),)

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        c = self.correlation
        partial = intervals(SPLIT_CHANNELS, c.filter, c.channels)
        # of several taps a chunk's rest is zeros
        chunk = 16 if math.prod(c.filter) == 1 else math.gcd(16, c.channels)
        text = f"fp32_split,accumulation=tensor_core:{chunk}:2:truncate:{partial}"
        text += f",ahead={SPLIT_CHANNELS // chunk}"
        return text + (f",scale={self.given}" if self.given else "")

    @property
    def checked_correlation(self) -> CheckedCorrelation | None:
        return self

    def scaled(self, scale: Scale | None) -> Self:
        """The plan with the caller's scale."""
        return replace(self, given=scale) if scale else self

    def with_epilogue(self, epilogue: Epilogue) -> None:
        return None  # outputs are looked at again

    def source(self) -> str:
        """The translation unit of the kernels."""
        c = self.correlation
        return split_source(self.config, c.rotated, not c.unit)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        others = ("scale", "scan", "direct_filter")
        return {"winolab_direct_split": self.config.split_shared_memory} | {
            f"winolab_{name}": 0 for name in others
        }

    def found_source(self) -> str:
        """The text of what the kernels found."""
        return found_source()

    def scale_params(self, x: View, header: int, rows: int) -> Params:
        """Parameters of the launches that sample and scan x; ``header``, the filter's ``rows``."""
        return launch.scale_params(self, x, header, rows)

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch_split(self, kernels, a, b, out, workspace)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Split the filter."""
        launch.prepare_split(self, kernels, b, prepared)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a filter that is split; ``workspace`` begins with the header."""
        launch.correlate_split(self, kernels, a, None, prepared, out, workspace)


@dataclass(frozen=True)
class DirectFfmaPlan(FfmaTiling, BasePlan):
    """One call on FFMA units: what other kernels of FP32 do not serve, and split products' fallback
    there."""

    predicted: float = 0.0  # seconds
    epilogue: Epilogue | None = None
    kernel = "direct"
    precision = simulated = "fp32"
    out_dtype = "float32"
    points = "best"  # as of all plans; there is nothing to interpolate
    tile = Tile(1, 1)
    tiles = ()
    workspace = 0
    config = FfmaConfig()

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return direct()

    @property
    def fallback_launches(self) -> FallbackLaunches | None:
        return self

    def __str__(self) -> str:
        p = self.problem
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision} on FFMA units, nothing transformed",
                f"policies   {self.config}",
                f"grid       {plural(self.grid, 'block')} of {FFMA_THREADS} threads",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def with_epilogue(self, epilogue: Epilogue) -> Self:
        """The plan whose kernels apply it as they store y."""
        return replace(self, epilogue=epilogue)

    def source(self) -> str:
        """The translation unit of its kernel."""
        return ffma_source(self.correlation.rotated, self.epilogue)

    def shared(self) -> dict[str, int]:
        """Its kernel, which has no dynamic shared memory."""
        return {"winolab_direct_ffma": 0}

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
        """Compute all groups on the current stream; ``wanted``: the address of flags that have to
        ask for it (fallback.cuh), or 0."""
        launch.launch_ffma(self, kernels, a, b, out, workspace, wanted)


def plans(request: Request) -> Iterator[DirectPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    device, algorithm = request.device, request.algorithm
    request.need(device.wgmma, "direct products by wgmma need 9.0")
    if algorithm and algorithm.kind != "direct":
        raise ValueError(f"direct products do not compute {algorithm}")
    c = counted(request.problem, request.direction)
    check_vectors(request, (c.channels, c.out_channels), "direct products on Tensor Cores", VECTOR)
    if c.empty or not c.channels:
        raise ValueError("direct products on Tensor Cores need something to sum")
    flat = flattened(c)
    config = request.config_of(Config)
    if config and not (config.bn in POSITIONS and serves(config, c)):
        raise ValueError(f"direct products of {plural(c.filter[2], 'tap')} have no blocks {config}")
    if config:
        check_room(request, config.shared_memory)
    offered = configs(row(c) if flat else c, device)
    for shape in (config,) if config else offered:
        yield _plan(request, c, shape, flat)


def split_plans(request: Request) -> Iterator[DirectSplitPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    device, algorithm = request.device, request.algorithm
    request.need(device.wgmma, "direct products by wgmma need 9.0")
    if algorithm and algorithm.kind != "direct":
        return  # others say what computes it
    c = counted(request.problem, request.direction)
    check_vectors(
        request, (c.channels, c.out_channels), "direct products of split data", SPLIT_VECTOR
    )
    if c.empty or not c.channels or 0 in c.input:
        raise ValueError("direct products on Tensor Cores need something to sum")
    if not checkable(math.prod(c.output[1:])):
        raise unchecked(c.output[1:])
    config, flat = request.config_of(Config), flattened(c)
    if config and not fits(config, c):
        raise ValueError(f"direct products of split data have no blocks {config} for these taps")
    if config:
        check_room(request, config.split_shared_memory)
        yield _split_plan(request, c, config, flat)
        return
    alone = [_split_plan(request, c, shape, flat) for shape in split_configs(c)]
    yield from alone
    least = min((p.predicted for p in alone), default=0.0)
    # Single taps are left to cuBLASLt, and blocks of more positions would be fewer still.
    for p in () if flat else [p for p in alone if p.config.bn == FEWEST]:
        for shape in clusters_of(p.config, c, device, SPLIT_CHANNELS):
            shared = _split_plan(request, c, shape, flat)
            if shared.predicted <= WORTH * least:
                yield shared


def ffma_plans(request: Request) -> Iterator[DirectFfmaPlan]:
    """The one plan. Raises ValueError where it cannot run, and says why."""
    device, algorithm, problem = request.device, request.algorithm, request.problem
    if algorithm and algorithm.kind != "direct":
        return  # others say what computes it
    if problem.unit:
        return  # gamma_ffma's direct products are faster
    c = counted(problem, request.direction)
    if c.empty or not c.channels or 0 in c.input:
        raise ValueError("direct products need something to sum")
    found = DirectFfmaPlan(request.direction, problem, c, device)
    for name, value in (("blocks", found.grid), ("outputs", found.blocks_n * FFMA_POSITIONS)):
        if value > MOST:
            raise uncounted(f"the number of {name} of direct products", value)
    yield replace(found, predicted=ffma_seconds(found))


def _plan(request: Request, c: Correlation, config: Config, flat: bool) -> DirectPlan:
    what = request.direction, request.problem, c, request.precision, request.stored
    found = DirectPlan(*what, config, request.device, flat)
    return replace(found, predicted=seconds(found))


def _split_plan(request: Request, c: Correlation, config: Config, flat: bool) -> DirectSplitPlan:
    what = request.direction, request.problem, c, "fp32_split", "float32"
    found = DirectSplitPlan(*what, config, request.device, flat)
    return replace(found, predicted=split_seconds(found))
