"""Filter gradients of grouped layers of few channels a group, on mma.sync: plans.

Memory binds them; the implicit GEMM multiplies channels of groups with those of others and gathers
x tap by tap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.arguments.words import plural
from winolab.gpu.families import wgrad
from winolab.gpu.families.axes import check_room, check_steps
from winolab.gpu.families.direct_products import DirectGradient
from winolab.gpu.families.wgrad_grouped import cost, launch
from winolab.gpu.families.wgrad_grouped.config import MOST, ROWS, Config, configs, span
from winolab.gpu.families.wgrad_grouped.source import source
from winolab.gpu.families.wgrad_grouped.tiling import Tiling
from winolab.gpu.params import MOST as COUNTED
from winolab.gpu.params import VECTOR, Kernels, View, uncounted
from winolab.gpu.planner.correlation import check_reach
from winolab.gpu.planner.request import DTYPES, ITEMSIZE, Request, Sum


@dataclass(frozen=True)
class WgradGroupedPlan(Tiling, DirectGradient):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    predicted: float = 0.0  # seconds, the sum of shares included

    @property
    def kernel(self) -> str:
        """As of the other directions."""
        return "grouped"

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic: of FP32's TF32 parts the Tensor Core sums the
        three products of a step's outputs, and FP32 additions the steps."""
        if self.precision != "fp32_split":
            return super().simulated
        return (
            f"fp32_split,product=tf32,scale=none,accumulation=tensor_core:8:2:truncate:{3 * ROWS}"
        )

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed: by every share's warps, added up in FP32."""
        parts = self.shares * self.config.warp_rows
        return (Sum(1.0, max(1.0, self.gradient.products / parts), parts),)

    def __str__(self) -> str:
        v = self.config
        tile = f"{v.rows} × {v.columns} positions of {plural(v.images, 'image')}"
        block = f"{tile}, {plural(16 * v.units, 'output channel')}, {plural(v.taps, 'tap')}"
        parts = plural(self.shares, "part")
        grid = f"grid       {plural(self.grid, 'block')} of {self.threads} threads, sum in {parts}"
        return self.told(block, [grid])

    def source(self) -> str:
        """The translation unit of its kernels."""
        types = DTYPES[self.precision], self.out_dtype
        return source(self.config, self.span, self.held, self.stages, types)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_wgrad_grouped": self.shared_memory, "winolab_reduce": 0}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch(self, kernels, a, b, out, workspace)


def plans(request: Request) -> Iterator[WgradGroupedPlan]:
    """Every block shape that can run; none of layers whose groups have too many channels.

    Raises ValueError where a named config does not serve, or none can, and says why.
    """
    config, algorithm = request.config_of(Config), request.algorithm
    if algorithm and algorithm.kind != "direct":
        return  # others say what computes it
    problem, device = request.problem, request.device
    check_reach(problem)
    check_steps(problem)
    g = wgrad.Gradient.of(problem, unit=False)
    size = ITEMSIZE[request.dtype]
    found = span(g, VECTOR // size)
    if not config and (not found or not request.maps_aligned):
        return  # other families serve it
    if not found or (config and not config.runs(found, size)):
        what = (
            f"{plural(g.groups, 'group')} of {plural(g.channels, 'channel')} and {g.out_channels}"
        )
        raise ValueError(
            f"grouped layers' gradients, {config}, do not serve {what}: 16 output channels meet "
            f"{8 * MOST} of x at most, and all are whole vectors"
        )
    if not request.maps_aligned:
        raise ValueError(
            "grouped layers' gradients need pixels that lie 16-byte aligned: copy the arrays"
        )
    if 0 in (g.batch, *g.input, *g.output):
        raise ValueError("grouped layers' gradients need something to sum")
    for v in (config,) if config else configs(g, found):
        made = WgradGroupedPlan(problem, g, request.precision, request.written, v, device, found, 1)
        if not made.counted or made.shared_memory > device.shared_memory:
            if config:
                check_room(request, made.shared_memory)
                raise ValueError(f"rows or columns of {config} lie too far apart")
            continue
        made = _shared(made, request.workspace_limit)
        if (most := max(made.work_tiles, made.grid)) > COUNTED - (1 << 20):
            raise uncounted("the number of work tiles of a grouped layer", most)
        yield made


def _shared(plan: WgradGroupedPlan, limit: int | None) -> WgradGroupedPlan:
    """The fastest predicted of a config's numbers of shares, within the limit; by default within
    what a sum may take beside its data."""
    most = wgrad.WORKSPACE_OF_DATA * plan.gradient.data if limit is None else limit
    made = [replace(plan, shares=n) for n in cost.shares(plan)]
    timed = [replace(p, predicted=cost.seconds(p)) for p in made if p.workspace <= most]
    return min(timed, key=lambda p: p.predicted)
