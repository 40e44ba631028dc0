"""Filter gradients of layers of few channels on one side: plans.

What memory takes for the wide side binds them, or FFMAs where a filter has many taps; blocks of
Tensor Cores are nearly empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.algorithm import Algorithm, Tile, direct
from winolab.arguments.words import plural
from winolab.gpu.families.direct_products import sequential
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.families.wgrad_thin import cost, launch
from winolab.gpu.families.wgrad_thin.config import FEW, SLICES, Config, configs
from winolab.gpu.families.wgrad_thin.source import source
from winolab.gpu.families.wgrad_thin.tiling import Tiling
from winolab.gpu.params import MOST, Kernels, View, uncounted
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import check_reach
from winolab.gpu.planner.request import ITEMSIZE, Request, Sum


@dataclass(frozen=True)
class WgradThinPlan(Tiling, BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    predicted: float = 0.0  # seconds, the sum of shares included

    direction = "backward_filter"
    kernel = "thin"
    tile = Tile(1, 1)
    tiles = (tile,)
    points = "best"  # as of all plans; there is nothing to interpolate

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return direct()

    @property
    def simulated(self) -> str:
        """What the reference calls the arithmetic: sums in FP32."""
        return sequential(self.precision)

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed: by every slot of every share; a block adds up its slots, and another
        launch the shares, in SLICES that are added in turn."""
        slots, shares = self.config.slots, self.shares
        added = slots + (shares / min(shares, SLICES) + min(shares, SLICES) if shares > 1 else 0)
        return (Sum(1.0, max(1.0, self.positions / (shares * slots)), added),)

    def __str__(self) -> str:
        p, v = self.problem, self.config
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"block      {plural(v.width, 'channel')} of {v.wide} × "
                f"{plural(v.columns, 'column')}, chunks of {v.together}",
                f"policies   {v}",
                f"grid       {plural(self.grid, 'block')} of {v.threads} threads, "
                f"sum in {plural(self.shares, 'part')}",
                f"memory     {v.shared_memory} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of its kernels."""
        return source(self.config, self.masked, (self.dtype, self.out_dtype))

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {
            "winolab_wgrad_thin": self.config.shared_memory,
            "winolab_wgrad_thin_sums": 0,
        }

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute it on the current stream."""
        launch.launch(self, kernels, a, b, out, workspace)


def plans(request: Request) -> Iterator[WgradThinPlan]:
    """Every block shape that can run; none of groups, and of layers of many channels.

    Raises ValueError where none can run a thin layer, and says why.
    """
    device, problem, algorithm = request.device, request.problem, request.algorithm
    config = request.config_of(Config)
    fewest = min(problem.in_channels, problem.out_channels)
    if not config and (problem.groups > 1 or fewest > FEW):
        return  # other families serve it
    if algorithm and algorithm.kind != "direct":
        return  # others say what computes it
    check_reach(problem)
    g, size = Gradient.of(problem, unit=False), ITEMSIZE[request.dtype]
    if 0 in (g.batch, g.channels, g.out_channels, *g.input, *g.output):
        raise ValueError("thin layers' kernels need something to sum")
    if config and not (problem.groups == 1 and config.serves(g, size)):
        what = f"{plural(g.channels, 'channel')} and {plural(g.out_channels, 'output channel')}"
        raise ValueError(f"{config} does not serve {plural(problem.groups, 'group')} of {what}")
    for v in (config,) if config else configs(g, size):
        found = WgradThinPlan(
            problem, g, request.precision, request.dtype, request.stored, v, device, 1
        )
        if found.positions > MOST - (1 << 16):
            raise uncounted("the number of positions of a thin layer", found.positions)
        yield _shared(found, request.workspace_limit)


def _shared(plan: WgradThinPlan, limit: int | None) -> WgradThinPlan:
    """The fastest predicted of a config's numbers of shares, within the limit where that is so."""
    made = [replace(plan, shares=n) for n in cost.shares(plan)]
    timed = [replace(p, predicted=cost.seconds(p)) for p in made]
    fitting = [p for p in timed if limit is None or p.workspace <= limit]
    return min(fitting or timed, key=lambda p: p.predicted)
