"""Nested Winograd F(n×n, r×r) on Tensor Cores: which tiles, blocks and batches run.

Forward and backward data in two dimensions, in split FP32, of unit stride.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

from winolab.algorithm import Algorithm
from winolab.gpu.families.nested import launch
from winolab.gpu.families.nested.config import KC, ROW_BYTES, Config, configs
from winolab.gpu.families.nested.cost import seconds
from winolab.gpu.families.nested.source import source
from winolab.gpu.families.nested.tiles import MOST_STATES, Pair, multiplications, pairs, serving
from winolab.gpu.families.nested.tiling import Tiling
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import SCALING, Correlation, unserved
from winolab.gpu.planner.fallback import checkable, unchecked
from winolab.gpu.planner.ranking import loses
from winolab.gpu.planner.request import CheckedCorrelation, Request
from winolab.ref.arithmetic.split import Scale

ARCHITECTURE = (9, 0)  # wgmma is 9.0's alone
OFFERED = 3  # plans whose error is admitted
PROMISING = 2.0  # times the fewest multiplications of any tiles, for tiles to be considered
SHARE = 4  # a workspace without a limit takes at most such a part of the device's memory


@dataclass(frozen=True)
class NestedPlan(Tiling, BasePlan):
    """One call: what is computed, by which kernels, in which batches, at what cost."""

    predicted: float = 0.0  # seconds, all launches
    precision = "fp32_split"
    out_dtype = "float32"
    scaling = SCALING
    checks_accuracy = True  # the workspace begins with flags about the results (fallback.cuh)

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        text = f"fp32_split,accumulation=tensor_core:16:2:truncate:{3 * KC}"
        text += f",ahead={KC // 16},filters=fp64"
        return text + (f",scale={self.given}" if self.given else "")

    def __str__(self) -> str:
        p, b = self.problem, self.box(self.images)
        transformed = ", ".join(f"{self.sizes[part] >> 20} MiB {part.upper()}" for part in "vmu")
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} {self.precision}, points {self.points}, "
                f"{math.prod(self.pieces)} pieces of the filter",
                f"block      {self.config.bm} channels × {b.images} images × {b.height} × "
                f"{b.width} tiles, {KC} channels a stage",
                f"policies   {self.config}",
                f"batches    {len(self.batches)} of {self.images} images, "
                f"{self.work_tiles(self.images)} work tiles of {self.mean_steps:.4g} stages",
                f"memory     {self.config.shared_memory} B shared, {self.workspace} B workspace: "
                f"{transformed}",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def scaled(self, scale: Scale | None) -> Self:
        """The plan with the caller's scale."""
        return replace(self, given=scale) if scale else self

    def source(self) -> str:
        """The translation unit of the kernels."""
        return source(self.tiles, self.points, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        others = ("scale", "scan", "nested_rows", "nested_losses", "nested_filter")
        others += ("nested_input", "nested_output")
        products = {"winolab_nested_products": self.config.shared_memory}
        return {f"winolab_{name}": 0 for name in others} | products

    @property
    def checked_correlation(self) -> CheckedCorrelation | None:
        return self

    def scale_params(self, x: View, header: int, rows: int) -> Params:
        """Parameters of the launches that sample and scan x; ``header``, the filter's ``rows``."""
        return launch.scale_params(self, x, header, rows)

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch(self, kernels, a, b, out, workspace)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter."""
        launch.prepare(self, kernels, b, prepared)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a transformed filter; ``workspace`` begins with the header."""
        launch.correlate(self, kernels, a, None, prepared, out, workspace)


def plans(request: Request) -> Iterator[NestedPlan]:
    """The fastest predicted plans, down to the OFFERED-th that loses no more than sums in FP32; of
    a named algorithm all. Raises ValueError where none can run, and says why.
    """
    device, algorithm = request.device, request.algorithm
    if algorithm and algorithm.kind != "winograd":
        return  # other families say what they run
    if algorithm and algorithm.scaling:
        raise unserved(algorithm)
    if device.compute_capability != ARCHITECTURE:
        raise request.unfit("nested Winograd by wgmma needs {}.{}".format(*ARCHITECTURE))
    c = Correlation.of(request.problem, request.direction)
    if c.input[0] * c.filter[0] != 1 or min(c.filter[1:]) < 2 or c.empty or not c.channels:
        raise ValueError("nested Winograd on Tensor Cores has two dimensions, of two taps and more")
    asked = request.config_of(Config)
    shapes = [v for v in configs(request, c) if (asked or v) == v]
    tiles = [t for t in _tiles(c, algorithm) if checkable(_outputs(c, t))]
    if not tiles:
        raise unchecked(c.output[1:])
    limit = request.workspace_limit
    limit = device.memory // SHARE if limit is None else limit
    every = [_plan(request, c, *of, limit) for of in product(tiles, shapes)]
    found = sorted((p for p in every if isinstance(p, NestedPlan)), key=lambda p: p.predicted)
    if not found:
        short = [needed for needed in every if isinstance(needed, int)]
        if not short:
            raise ValueError(
                "nested Winograd's kernels count neither as many channels nor as large images as "
                "these; use gamma"
            )
        raise ValueError(
            f"nested Winograd needs a workspace of {min(short)} B at least; the limit is {limit} "
            "B: raise it, or use gamma"
        )
    accurate = 0
    for p in found:
        yield p
        accurate += not algorithm and not loses(p)
        if accurate == OFFERED:
            return


def _outputs(c: Correlation, tiles: Pair) -> int:
    """Outputs of a channel, in the first tile of a map."""
    return math.prod(min(t.n, size) for t, size in zip(tiles, c.output[1:], strict=True))


def _tiles(c: Correlation, algorithm: Algorithm | None) -> Iterator[Pair]:
    """What is named, or what multiplies little enough to be considered."""
    filters = c.filter[1], c.filter[2]
    every = list(pairs(filters))
    if algorithm is None:
        most = PROMISING * multiplications(every[0], filters)
        square = filters[0] == filters[1] and c.output[1] == c.output[2]
        for at, (first, second) in enumerate(every):
            mirrored = square and (second, first) in every[:at]
            if not mirrored and multiplications((first, second), filters) <= most:
                yield first, second
        return
    if len(algorithm.tiles) != 2:
        raise ValueError(f"{algorithm}: the CUDA kernels of winograd have two dimensions")
    for tile, taps in zip(algorithm.tiles, filters, strict=True):
        if tile not in serving(taps):
            known = ", ".join(map(str, serving(taps)))
            raise ValueError(f"{algorithm}: no CUDA kernel has {tile} for {taps} taps, but {known}")
    first, second = algorithm.tiles
    if (first, second) not in every:
        raise ValueError(f"{algorithm}: the CUDA kernels have up to {MOST_STATES} states")
    yield first, second


def _plan(
    request: Request, c: Correlation, tiles: Pair, config: Config, limit: int
) -> NestedPlan | int | None:
    """The fewest batches that stay within the limit; where not one image does, the bytes
    that it needs, None where it has more than is counted."""
    images = c.batch
    while True:
        found = NestedPlan(
            request.direction, request.problem, c, tiles, request.points, config, request.device,
            images,
        )  # fmt: skip
        counted = max(found.sizes["v"] // ROW_BYTES, found.sizes["m"] // 8) < 1 << 31
        counted = counted and found.steps < 1 << 16
        if counted and found.workspace <= limit:
            return replace(found, predicted=seconds(found))
        if images == 1:
            return found.workspace if counted else None
        images = -(-images // 2)
