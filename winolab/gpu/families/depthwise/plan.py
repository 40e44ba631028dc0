"""Depthwise convolution in all directions: plans.

Every sum is of one channel's taps, or of one channel's positions: no matrix product. What it costs
is its data, read and written once, and FFMAs, so that both have to go on at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from winolab.algorithm import Algorithm, Tile, direct
from winolab.arguments.epilogue import Epilogue
from winolab.arguments.words import plural
from winolab.gpu.families.depthwise import cost, launch
from winolab.gpu.families.depthwise.config import (
    Config,
    configs,
    plain,
    planes,
    slides,
    staged,
)
from winolab.gpu.families.depthwise.shape import Depthwise
from winolab.gpu.families.depthwise.source import TYPES, planes_source, source
from winolab.gpu.families.depthwise.tiling import Tiling
from winolab.gpu.families.direct_products import sequential
from winolab.gpu.params import Kernels, View, uncounted
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.request import ITEMSIZE, Request, Sum


@dataclass(frozen=True)
class DepthwisePlan(Tiling, BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    predicted: float = 0.0  # seconds
    epilogue: Epilogue | None = None

    kernel = "depthwise"
    tile = Tile(1, 1)
    points = "best"  # as of all plans; there is nothing to interpolate

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return direct()

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """None of correlations; F(1, 1) of gradients."""
        return (self.tile,) if self.gradient else ()

    @property
    def simulated(self) -> str:
        """What the reference calls the arithmetic: sums in order, in FP32."""
        return sequential(self.precision)

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed: by every thread of every share, whose sums are then added up."""
        if not self.gradient:
            return ()
        slots = self.config.slots
        threads = min(self.work_tiles * (slots if self.config.stages else 1), self.shares * slots)
        return (Sum(1.0, self.shape.positions / threads, threads),)

    def __str__(self) -> str:
        p, v = self.problem, self.config
        size = max(self.shared().values())
        block = (
            f"{v.channels} channels × {plural(v.slots, 'strip')} of "
            f"{plural(v.columns, 'column')} × {plural(self.rows, 'row')}"
        )
        if v.kind == "planes":
            block = (
                f"{v.threads} × {plural(v.columns, 'column')} × {plural(v.rows, 'row')} of planes"
            )
        shares = f", {self.shares} shares of the sum" if self.gradient else ""
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"block      {block}",
                f"policies   {v}",
                f"grid       {plural(self.blocks, 'block')} of {v.threads} threads{shares}",
                f"memory     {size} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def with_epilogue(self, epilogue: Epilogue) -> Self | None:
        """The plan whose kernels apply it as they store y; None of others than forward."""
        return replace(self, epilogue=epilogue) if self.direction == "forward" else None

    @property
    def in_planes(self) -> DepthwisePlan | None:
        """The plan of the fastest predicted config of planes."""
        if self.config.kind == "planes":
            return None
        made = (
            replace(self, config=v, shares=1, workers=0)
            for v in planes(self.shape, self.gradient, ITEMSIZE[self.dtype])
        )
        found = (p for each in made for p in _sized(each, None))
        return min(found, key=lambda p: p.predicted, default=None)

    def source(self) -> str:
        """The translation unit of its kernels."""
        if self.config.kind == "planes":
            types = self.dtype, self.out_dtype
            return planes_source(self.file, self.config, self.shape, types, self.epilogue)
        known = self.config.kind != "any"
        d = self.shape
        shape = (*d.filter, *d.stride[1:]) if known else None
        how = d.rotated, d.gathered, slides(d)
        types = TYPES[self.dtype], TYPES[self.out_dtype]
        return source(self.file, self.config, self.gradient, shape, how, types, self.epilogue)

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all channels on the current stream."""
        launch.launch(self, kernels, a, b, out, workspace)


def plans(request: Request) -> Iterator[DepthwisePlan]:
    """Every block shape that can run; none of problems that are not depthwise.

    Raises ValueError where none can run a depthwise problem, and says why.
    """
    device, algorithm = request.device, request.algorithm
    if not request.problem.depthwise:  # another family says what is wrong with it
        return
    if algorithm and algorithm.kind != "direct":
        raise ValueError(f"depthwise kernels do not compute {algorithm}")
    d = Depthwise.of(request.problem, request.direction)
    if 0 in (d.batch, d.channels, d.multiplier, *d.input, *d.output):
        raise ValueError("depthwise kernels need something to sum")
    gradient = request.direction == "backward_filter"
    how = d, gradient, ITEMSIZE[request.dtype], request.maps_aligned
    config = request.config_of(Config)
    if config and config.kind == "planes":
        offered = planes(d, gradient, ITEMSIZE[request.dtype])
    else:
        offered = [*(staged(*how) if device.large_blocks else ()), *configs(*how), *plain(*how)]
    if config:
        offered = [v for v in offered if v == config]
    made = [
        DepthwisePlan(
            request.direction, request.problem, d, request.precision, request.dtype,
            request.stored, v, device, 1,
        )
        for v in offered
    ]  # fmt: skip
    found = [p for each in made for p in _sized(each, request.workspace_limit)]
    if made and not found:
        raise uncounted("the number of work tiles of a depthwise layer", made[0].work_tiles)
    yield from found


def alone(request: Request) -> bool:
    """Whether other families' kernels would be launched a channel each."""
    return request.problem.depthwise and request.problem.groups > 1


def _sized(plan: DepthwisePlan, limit: int | None) -> Iterator[DepthwisePlan]:
    """The fastest predicted of a config's walks and shares, where kernels count their numbers."""
    own = {"any": 1, "plain": 1, "planes": plan.config.rows}.get(plan.config.kind)
    rows = (own,) if own else cost.walks(plan.walked)
    made = (replace(plan, rows=r) for r in rows)
    if plan.gradient:
        made = (replace(p, shares=n) for p in made for n in cost.shares(p))
    elif plan.config.stages:
        made = (replace(p, workers=cost.workers(p)) for p in made)
    timed = [(cost.seconds(p), p) for p in made if p.counted]
    fitting = [(s, p) for s, p in timed if limit is None or p.workspace <= limit]
    if timed:
        predicted, fastest = min(fitting or timed, key=lambda each: each[0])
        yield replace(fastest, predicted=predicted)
