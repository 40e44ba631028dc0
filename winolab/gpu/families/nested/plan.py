"""Nested Winograd F(n×n, r×r) on Tensor Cores: which tiles, blocks and batches run.

Forward and backward data of unit stride, in split FP32, FP16 and BF16: nested in the last two
dimensions, and summed directly over the taps of a third.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

from winolab.algorithm import Algorithm, Problem, Tile
from winolab.arguments.words import agreeing, plural
from winolab.gpu.codegen.translation_unit import TranslationUnit
from winolab.gpu.families import filter_units
from winolab.gpu.families.nested import launch
from winolab.gpu.families.nested.config import KC, ROW_BYTES, STEP, Config, configs
from winolab.gpu.families.nested.cost import seconds
from winolab.gpu.families.nested.source import (
    exchanged,
    filter_source,
    halvings,
    made_of,
    source,
    staged,
)
from winolab.gpu.families.nested.tiles import (
    Pair,
    fits,
    moduli,
    multiplications,
    pairs,
    serving,
)
from winolab.gpu.families.nested.tiling import Tiling, deep
from winolab.gpu.families.scale import found_source
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import SCALING, Correlation, unserved
from winolab.gpu.planner.fallback import checkable, unchecked
from winolab.gpu.planner.ranking import loses
from winolab.gpu.planner.request import CheckedCorrelation, Request
from winolab.ref.arithmetic.split import Scale
from winolab.ref.error.metrics import error_ratio

OFFERED = 3  # plans whose error is admitted
PROMISING = 2.0  # times the fewest multiplications of any tiles, for tiles to be considered
SHARE = 4  # a workspace without a limit takes at most such a part of the device's memory


@dataclass(frozen=True)
class NestedPlan(Tiling, BasePlan):
    """One call: what is computed, by which kernels, in which batches, at what cost."""

    predicted: float = 0.0  # seconds, all launches
    scaling = SCALING

    @property
    def checks_accuracy(self) -> bool:
        """Whether the workspace begins with flags about the results (fallback.cuh)."""
        return self.split

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        text = f"{self.precision},accumulation=tensor_core:16:2:truncate"
        if self.split:
            chunk = KC[self.precision]
            text += f":{3 * chunk},ahead={chunk // STEP},filters=fp64"
            return text + (f",scale={self.given}" if self.given else "")
        text += f",sums={self.precision}"
        if self.precision == "fp16":
            text += ",scale=" + ":".join(str(-h) for h in halvings(self.pair, self.points))
        return text

    def __str__(self) -> str:
        p, b = self.problem, self.box(self.images)
        batches = sum(count for count, _ in self.alike)
        transformed = ", ".join(f"{self.sizes[part] >> 20} MiB {part.upper()}" for part in "vmu")
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, points {self.points}, "
                f"{plural(math.prod(self.pieces), 'piece')} of the filter",
                f"block      {self.config.bm} channels × {plural(b.images, 'image')} × "
                f"{b.height} × {b.width} tiles, {KC[self.precision]} channels a stage",
                f"policies   {self.config}",
                f"batches    {batches} of {plural(self.images, 'image')}, "
                f"{plural(self.work_tiles(self.images), 'work tile')} of "
                f"{self.mean_steps:.4g} {agreeing(self.mean_steps, 'stage', 'stages')}",
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
        types = self.precision, self.out_dtype
        return source(self.pair, self.points, self.config, types, self.rest)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        transforms = {
            f"winolab_nested_{staged(self.pair)}{name}": size
            for name, size in exchanged(self.pair, self.precision).items()
        }
        products = {"winolab_nested_products": self.config.shared_memory}
        return self.filter_shared() | transforms | products

    def translation_units(self) -> tuple[TranslationUnit, ...]:
        """Those of filter and products; of 16 bits, whose filters take little time, one of both."""
        return filter_units.units_of(self) if self.split else (self,)

    def filter_source(self) -> str:
        """The text of what transforms the filter, and of scales."""
        return filter_source(self.pair, self.points, self.config)

    def filter_shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory of their kernels, by name."""
        others = ("scale", "scan", "nested_rows", "nested_losses") * self.split
        size = exchanged(self.pair, self.precision)["filter"]
        return {
            **{f"winolab_{name}": 0 for name in others},
            f"winolab_nested_{staged(self.pair)}filter": size,
        }

    @property
    def checked_correlation(self) -> CheckedCorrelation | None:
        return self if self.split else None

    def found_source(self) -> str:
        """The text of what the kernels found."""
        return found_source(*made_of(self.pair, self.points))

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
    request.need(device.wgmma, "nested Winograd by wgmma needs 9.0")
    c = Correlation.of(request.problem, request.direction)
    if request.problem.ndim < 2 or min(c.filter[1:]) < 2 or c.empty or not c.channels:
        raise ValueError(
            "nested Winograd on Tensor Cores has two dimensions or three, of two taps and more in "
            "the last two"
        )
    asked = request.config_of(Config)
    shapes = [v for v in configs(request, c) if (asked or v) == v]
    tiles = list(_tiles(request, c))
    if request.precision == "fp32_split":
        tiles = [of for of in tiles if checkable(_outputs(c, of[0]))]
        if not tiles:
            raise unchecked(c.output[1:])
    limit = request.workspace_limit
    limit = device.memory // SHARE if limit is None else limit
    every = [_plan(request, c, *of, shape, limit) for of, shape in product(tiles, shapes)]
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
        accurate += not algorithm and not request.tolerance and not loses(p)
        if accurate == OFFERED:
            return


def _outputs(c: Correlation, tiles: Pair) -> int:
    """Outputs of a channel, in the first tile of a map."""
    return math.prod(min(t.n, size) for t, size in zip(tiles, c.output[1:], strict=True))


def _tiles(request: Request, c: Correlation) -> Iterator[tuple[Pair, str]]:
    """What is named, or what multiplies little enough to be considered, and its points."""
    if request.algorithm:
        yield _named(request.algorithm, request.problem, c), request.points
        return
    filters = c.filter[1], c.filter[2]
    every = list(pairs(filters))
    most = PROMISING * multiplications(every[0], filters)
    square = filters[0] == filters[1] and c.output[1] == c.output[2]
    for at, (first, second) in enumerate(every):
        mirrored = square and (second, first) in every[:at]
        few = not mirrored and multiplications((first, second), filters) <= most
        if few and _offered(request, c, (first, second), "best"):
            yield (first, second), "best"
    for pair, points in moduli(filters):
        if _offered(request, c, pair, points):
            yield pair, points


def _offered(request: Request, c: Correlation, pair: Pair, points: str) -> bool:
    """Whether the planner may take a pair that nobody names: of split products it asks for every
    problem. A depth that is summed or padded meets filters in one piece."""
    if deep(c) and (pair[0].r, pair[1].r) != c.filter[1:]:
        return False
    return request.precision == "fp32_split" or error_ratio(pair, points) <= request.admissible


def _named(algorithm: Algorithm, problem: Problem, c: Correlation) -> Pair:
    """The pair of an algorithm's tiles. Raises ValueError where no kernel has them: of a depth that
    is transformed, too, since none is predicted to be worth it (docs/notes/130)."""
    *outer, first, second = algorithm.tiles if len(algorithm.tiles) > 1 else (Tile(1, 1),) * 2
    if len(algorithm.tiles) != problem.ndim:
        raise ValueError(
            f"{algorithm}: the CUDA kernels of winograd have two dimensions, or F(1,1) along a "
            "third before them, as in winograd:1x4x4:1x3x3"
        )
    for tile, taps in zip((first, second), c.filter[1:], strict=True):
        if not fits(tile, taps) or (deep(c) and tile.r != taps):
            known = ", ".join(map(str, serving(taps)))
            raise ValueError(
                f"{algorithm}: no CUDA kernel has {tile} for {plural(taps, 'tap')}, but {known}"
            )
    summed = replace(algorithm, tiles=(*(Tile(1, 1) for _ in outer), first, second))
    if summed != algorithm:
        raise ValueError(
            f"{algorithm}: CUDA kernels of winograd sum over the depth's taps; use {summed}"
        )
    return first, second


def _plan(
    request: Request, c: Correlation, pair: Pair, points: str, config: Config, limit: int
) -> NestedPlan | int | None:
    """The fewest batches that stay within the limit; where not one image does, the bytes
    that it needs, None where it has more than is counted."""
    images = c.batch
    while True:
        found = NestedPlan(
            request.direction, request.problem, c, pair, points, request.precision,
            request.stored, config, request.device, images,
        )  # fmt: skip
        counted = max(found.sizes["v"] // ROW_BYTES, found.sizes["m"] // 8) < 1 << 31
        counted = counted and found.steps < 1 << 16
        if counted and found.workspace <= limit:
            return replace(found, predicted=seconds(found))
        if images == 1:
            return found.workspace if counted else None
        images = -(-images // 2)
