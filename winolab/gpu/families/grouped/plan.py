"""Grouped layers of few channels a group in 16 bits, forward and backward data: plans.

Memory binds them; the implicit GEMM multiplies zeros between groups and gathers x tap by tap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.arguments.words import plural
from winolab.gpu.families.axes import MOST_STRIDE, check_room, counted
from winolab.gpu.families.direct_products import FewChannels
from winolab.gpu.families.grouped import cost, launch
from winolab.gpu.families.grouped.config import MOST, Config, bundle, configs
from winolab.gpu.families.grouped.source import source
from winolab.gpu.families.grouped.tiling import Tiling
from winolab.gpu.params import MOST as COUNTED
from winolab.gpu.params import Kernels, View, uncounted
from winolab.gpu.planner.request import Request


@dataclass(frozen=True)
class GroupedPlan(Tiling, FewChannels):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    kernel = "grouped"

    def __str__(self) -> str:
        v = self.config
        block = f"{v.rows} × {v.columns} outputs of {plural(v.slice * self.bundle.groups, 'group')}"
        return self.told(block, (self.grid, v.threads), self.work_tiles * self.slices * self.phases)

    def source(self) -> str:
        """The translation unit of its kernel."""
        types, chunks = (self.dtype, self.out_dtype), (self.chunks, self.partial)
        rotated = self.correlation.rotated
        return source(self.config, self.bundle, chunks, rotated, types, self.epilogue)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_grouped": self.shared_memory}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch(self, kernels, a, b, out)


def plans(request: Request) -> Iterator[GroupedPlan]:
    """Every block shape that can run; none of layers that no bundle of few channels divides.

    Raises ValueError where a named config does not serve, or none can, and says why.
    """
    config, algorithm = request.config_of(Config), request.algorithm
    if algorithm and algorithm.kind != "direct":
        return  # others say what computes it
    c = counted(request.problem, request.direction)
    found = bundle(c)
    if not config and (not found or not request.maps_aligned):
        return  # other families serve it
    what = f"{plural(c.groups, 'group')} of {plural(c.channels, 'channel')} and {c.out_channels}"
    if not found or (config and not config.runs(c, found)):
        raise ValueError(
            f"grouped kernels, {config}, do not serve {what}: bundles of groups have multiples "
            f"of 8 channels, {MOST} at most on either side"
        )
    if not request.maps_aligned:
        raise ValueError("grouped kernels need pixels that lie 16-byte aligned: copy the arrays")
    if c.empty or 0 in c.input:
        raise ValueError("grouped kernels need something to sum")
    for v in (config,) if config else configs(c, found):
        made = GroupedPlan(
            request.direction, request.problem, c, found, request.precision, request.dtype,
            request.stored, v, request.device,
        )  # fmt: skip
        if config:
            check_room(request, made.shared_memory)
        elif made.shared_memory > request.device.shared_memory or not made.counted:
            continue
        if not made.counted:
            raise ValueError(f"outputs of {v} lie too far apart by stride {request.problem.stride}")
        tiles = max(made.work_tiles * made.slices * made.phases, made.grid)
        if (most := max(tiles, *(a.outputs * a.stride for a in made.axes))) > COUNTED - MOST_STRIDE:
            raise uncounted("the number of work tiles or of places of a grouped layer", most)
        yield replace(made, predicted=cost.seconds(made))
