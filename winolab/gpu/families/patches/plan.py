"""Products of patches in shared memory, forward and backward data in 16 bits: plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.arguments.words import plural
from winolab.gpu.families.axes import MOST_POSITIONS, counted
from winolab.gpu.families.direct_products import FewChannels
from winolab.gpu.families.patches import cost, launch
from winolab.gpu.families.patches.config import MOST_SHARED, Config, configs, serves
from winolab.gpu.families.patches.source import source
from winolab.gpu.families.patches.tiling import Tiling
from winolab.gpu.params import Kernels, View, uncounted
from winolab.gpu.planner.request import Request


@dataclass(frozen=True)
class PatchesPlan(Tiling, FewChannels):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    kernel = "patches"

    def __str__(self) -> str:
        v = self.config
        block = f"{v.rows} × {v.columns} positions × {plural(v.width, 'channel')}"
        return self.told(block, (self.grid, v.threads), self.patches.work_tiles * self.blocks_m)

    def source(self) -> str:
        """The translation unit of its kernel."""
        how = self.patches.odd, self.patches.masked
        types = self.dtype, self.out_dtype
        return source(self.config, self.correlation.channels, how, types, self.epilogue)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_patches": self.shared_memory}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute it on the current stream."""
        launch.launch(self, kernels, a, b, out)


def plans(request: Request) -> Iterator[PatchesPlan]:
    """Block shapes that can run, for each number of positions and channels the one that is
    predicted to be the fastest; none of layers that other families serve.

    Raises ValueError where none can run such a layer, and says why.
    """
    device, problem, algorithm = request.device, request.problem, request.algorithm
    config = request.config_of(Config)
    if algorithm and algorithm.kind != "direct":
        return  # others say what computes it
    c = counted(problem, request.direction)
    served = serves(c)
    if not config and not served:
        return
    if c.empty or 0 in c.input:
        raise ValueError("products of patches need something to sum")
    if not served:
        what = f"{plural(c.channels, 'channel')} and {plural(c.out_channels, 'output channel')}"
        steps = f"stride {problem.stride} and dilation {problem.dilation}"
        raise ValueError(
            f"products of patches serve one group of few channels, to multiples of 8, not "
            f"{plural(c.groups, 'group')} of {what} with {steps}"
        )
    if config and not config.runs:
        raise ValueError(f"products of patches have no kernel of {config}; name one of configs()")
    found: dict[tuple[int, ...], PatchesPlan] = {}
    for v in (config,) if config else configs(c):
        p = PatchesPlan(
            request.direction, problem, c, request.precision, request.dtype, request.stored, v,
            device,
        )  # fmt: skip
        both = p.patches, replace(p.patches, correlation=c)  # of one row, and of any arrays
        if p.shared_memory > min(MOST_SHARED, device.shared_memory):
            continue
        if not all(cut.counted for cut in both):
            continue
        work_tiles = max(cut.work_tiles for cut in both)
        if (most := max(work_tiles * p.blocks_m, c.batch * max(c.output))) > MOST_POSITIONS:
            raise uncounted("the number of positions of a thin layer", most)
        p = replace(p, predicted=cost.seconds(p))
        key = v.rows * v.columns, v.tiles, v.width
        if key not in found or p.predicted < found[key].predicted:
            found[key] = p
    if not found:
        raise ValueError(f"products of patches need {MOST_SHARED} B of shared memory at most")
    yield from found.values()
