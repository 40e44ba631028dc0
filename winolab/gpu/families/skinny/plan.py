"""Filters of one tap that few positions meet, in all directions: plans.

What a launch and memory's first answer take binds them: networks' squeezed images of one pixel, and
their last layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Self

from winolab.algorithm import Algorithm, Tile, direct
from winolab.arguments.epilogue import Epilogue
from winolab.arguments.words import plural
from winolab.gpu.families.axes import check_pointwise, pointwise
from winolab.gpu.families.direct_products import sequential
from winolab.gpu.families.skinny import cost, launch
from winolab.gpu.families.skinny.config import POSITIONS, Config, configs
from winolab.gpu.families.skinny.source import source
from winolab.gpu.families.skinny.tiling import Tiling, sizes
from winolab.gpu.params import MOST as COUNTED
from winolab.gpu.params import Kernels, View, uncounted
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.request import ITEMSIZE, Request, Sum

MOST = 8  # shapes that are offered, of those that are predicted to be the fastest


@dataclass(frozen=True)
class SkinnyPlan(Tiling, BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    predicted: float = field(default=0.0, kw_only=True)  # seconds
    epilogue: Epilogue | None = field(default=None, kw_only=True)

    kernel = "skinny"
    tile = Tile(1, 1)
    points = "best"  # as of all plans; there is nothing to interpolate
    workspace = 0
    regular_rows = True

    @property
    def reads_filters_in_place(self) -> bool:
        """Whether a filter is an operand: its channels have to be contiguous."""
        return not self.turned

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return direct()

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """None of correlations; F(1, 1) of gradients."""
        return (self.tile,) if self.turned else ()

    @property
    def simulated(self) -> str:
        """What the reference calls the arithmetic: sums in FP32."""
        return sequential(self.precision)

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed: in a part a thread of a tile, which these add up."""
        slices = self.config.slices
        return (Sum(1.0, max(1.0, self.sizes[2] / slices), slices),) if self.turned else ()

    def with_epilogue(self, epilogue: Epilogue) -> Self | None:
        """The plan whose kernel applies it as it stores y; None of the other directions."""
        return replace(self, epilogue=epilogue) if self.direction == "forward" else None

    def __str__(self) -> str:
        v, (rows, columns, depth) = self.config, self.sizes
        return "\n".join(
            [
                self.problem.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"product    {rows} × {columns} results, sums of {depth}",
                f"policies   {v}",
                f"grid       {plural(self.grid, 'block')} of {v.threads} threads, "
                f"{plural(self.count, 'tile')}",
                "memory     no workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of its kernel."""
        return source(self.config, self.direction, (self.dtype, self.out_dtype), self.epilogue)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_skinny": 0}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute it on the current stream."""
        launch.launch(self, kernels, a, b, out)


def plans(request: Request) -> Iterator[SkinnyPlan]:
    """The MOST shapes of the least predicted time, the fastest first; none of layers of many
    positions.

    Raises ValueError where none can run a request that names a config, and says why.
    """
    problem, config = request.problem, request.config_of(Config)
    if request.algorithm and request.algorithm.kind != "direct":
        return  # others say what computes it
    positions = problem.batch * math.prod(problem.output)
    if not config and not (pointwise(problem) and positions <= POSITIONS):
        return  # other families serve it
    check_pointwise(problem, "products of few positions serve")
    of = sizes(request.direction, problem)
    if 0 in of:
        raise ValueError("a product of few positions needs something to sum")
    if (most := max(of)) > COUNTED // 2:
        raise uncounted("the number of rows of a matrix", most)
    size = ITEMSIZE[request.dtype]
    if config and not config.serves(request.direction, of, size):
        raise ValueError(f"{config} does not serve {of[0]} × {of[1]} sums of {of[2]}")
    made = [
        SkinnyPlan(
            request.direction, problem, request.precision, request.dtype, request.stored, v,
            request.device,
        )
        for v in ([config] if config else configs(request.direction, of, size))
    ]  # fmt: skip
    if made and (least := min(p.count for p in made)) > COUNTED // 2:
        raise uncounted("the number of tiles", least)
    timed = (replace(p, predicted=cost.seconds(p)) for p in made if p.count <= COUNTED // 2)
    yield from sorted(timed, key=lambda p: p.predicted)[:MOST]
