"""Layers of few channels on one side, forward and backward data: plans.

What memory takes for x and y binds them: few channels leave Tensor Cores' blocks nearly empty, and
their FFMAs take less time than their data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.arguments.words import plural
from winolab.gpu.families.axes import counted
from winolab.gpu.families.direct_products import FewChannels, sequential
from winolab.gpu.families.thin import cost, launch
from winolab.gpu.families.thin.config import CHANNELS, OUTPUTS, THREADS, Config, configs
from winolab.gpu.families.thin.source import source
from winolab.gpu.families.thin.tiling import Tiling
from winolab.gpu.params import MOST, Kernels, View, uncounted
from winolab.gpu.planner.request import ITEMSIZE, Request


@dataclass(frozen=True)
class ThinPlan(Tiling, FewChannels):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    kernel = "thin"

    @property
    def simulated(self) -> str:
        """What the reference calls the arithmetic: sums in FP32."""
        return sequential(self.precision)

    def __str__(self) -> str:
        v = self.config
        lanes = plural(v.lanes, "lane")
        block = f"{v.together} positions × {plural(v.width, 'channel')} on {lanes}"
        return self.told(block, (self.grid, THREADS), self.work_tiles * self.blocks_m)

    def source(self) -> str:
        """The translation unit of its kernel."""
        types, c = (self.dtype, self.out_dtype), self.correlation
        return source(self.config, c.rotated, {*c.filter} == {1}, types, self.epilogue)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {f"winolab_thin_{self.config.kind}": self.shared_memory}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute it on the current stream."""
        launch.launch(self, kernels, a, b, out)


def plans(request: Request) -> Iterator[ThinPlan]:
    """Every block shape that can run; none of groups, and of layers of many channels.

    Raises ValueError where none can run a thin layer, and says why.
    """
    device, problem, algorithm = request.device, request.problem, request.algorithm
    config = request.config_of(Config)
    sides = problem.in_channels, problem.out_channels
    if request.direction == "backward_data":
        sides = sides[::-1]
    if not config and (problem.groups > 1 or (sides[0] > CHANNELS and sides[1] > OUTPUTS)):
        return  # other families serve it
    if algorithm and algorithm.kind != "direct":
        return  # others say what computes it
    c = counted(problem, request.direction)
    if c.empty or not c.channels or 0 in c.input:
        raise ValueError("thin layers' kernels need something to sum")
    sizes = ITEMSIZE[request.dtype], ITEMSIZE[request.stored]
    if config and not (problem.groups == 1 and config.serves(c, sizes)):
        what = f"{plural(c.channels, 'channel')} and {plural(c.out_channels, 'output channel')}"
        raise ValueError(f"{config} does not serve {plural(problem.groups, 'group')} of {what}")
    for v in (config,) if config else configs(c, sizes):
        found = ThinPlan(
            request.direction, problem, c, request.precision, request.dtype, request.stored, v,
            device,
        )  # fmt: skip
        if (most := max(found.positions, found.work_tiles * found.blocks_m)) > MOST - (1 << 14):
            raise uncounted("the number of positions of a thin layer", most)
        yield replace(found, predicted=cost.seconds(found))
