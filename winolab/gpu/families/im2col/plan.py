"""Direct forward and backward data on wgmma, of copies that walk positions: 16 bits and FP32.

Blocks are small, the blocks of a cluster share a sum, and nothing is found beside a block's first
position: that is faster than persistent blocks of boxes where positions are few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.algorithm import Tile
from winolab.arguments.words import plural
from winolab.gpu.families.axes import check_vectors, counted
from winolab.gpu.families.clusters import KC, MOST_SHARED, MOST_SPLITS, MOST_SUMS
from winolab.gpu.families.direct_products import DirectCorrelation, arithmetic, tf32_arithmetic
from winolab.gpu.families.im2col import cost, launch
from winolab.gpu.families.im2col.config import CONFIGS, TF32_CONFIGS, Config
from winolab.gpu.families.im2col.source import source
from winolab.gpu.families.im2col.tiling import Tiling
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import Request

VECTOR = 8  # channels of 16 bytes, as tensor maps have pixels apart
ROUNDS = 2  # of blocks: where there are more, persistent blocks are faster


@dataclass(frozen=True)
class Im2colPlan(Tiling, DirectCorrelation):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    def __str__(self) -> str:
        p, v = self.problem, self.config
        cluster = f", {v.split_k} of a cluster" if v.split_k > 1 else ""
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"block      {v.bn} positions × {v.bm} channels, "
                f"{plural(self.depth, 'channel')} a step",
                f"policies   {v}",
                f"grid       {plural(self.work_tiles * v.split_k, 'block')} of {v.threads} "
                f"threads{cluster}, {plural(self.steps, 'step')} a sum",
                f"memory     {v.shared_memory} B shared, no workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """F(1, 1) of FP32's parts, whose loss is predicted; else none."""
        return (self.tile,) if self.config.tf32 else super().tiles

    @property
    def sums_alone(self) -> bool:
        return bool(self.config.tf32)

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        if not self.config.tf32:
            return arithmetic(self.precision)
        return tf32_arithmetic(self.depth, self.correlation.filter, self.correlation.channels)

    @property
    def split_sums(self) -> tuple[tuple[float, int], ...]:
        """Sums that the blocks of a cluster share."""
        return ((1.0, self.config.split_k),) if self.config.tf32 else super().split_sums

    def source(self) -> str:
        """The translation unit of the kernel."""
        how = self.rank, self.correlation.rotated, self.epilogue
        return source(self.precision, self.out_dtype, self.config, *how)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_im2col": self.config.shared_memory}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch(self, kernels, a, b, out)


def plans(request: Request) -> Iterator[Im2colPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    what = "direct products of copies by position"
    request.need(request.device.wgmma, f"{what} need wgmma, which is 9.0's")
    config, parts = request.config_of(Config), request.precision == "fp32_split"
    if request.algorithm and request.algorithm.kind != "direct":
        if parts:
            return  # others say what computes it
        raise ValueError(f"{what} do not compute {request.algorithm}")
    c = counted(request.problem, request.direction)
    check_vectors(request, (c.channels, c.out_channels), what, VECTOR)
    if c.empty or not c.channels or 0 in c.input:
        raise ValueError(f"{what} need something to sum")
    if config and not (config.runs and has(config, c) and config.tf32 == parts):
        raise ValueError(
            f"{config}: blocks have 64, 128, 192 or 256 positions, 32 to 256 output channels by 32 "
            f"(backward data by 64), {MOST_SUMS} sums at most, clusters of up to {MOST_SPLITS}, "
            f"and of 2 stages and more as many as hold the sums and fit into {MOST_SHARED} B; "
            "tf32 is FP32's"
        )
    for v in (config,) if config else TF32_CONFIGS if parts else CONFIGS:
        made = Im2colPlan(
            request.direction, request.problem, c, request.precision, request.stored, v,
            request.device,
        )  # fmt: skip
        if unreached := made.unreached():
            raise ValueError(f"{what} serve {unreached}")
        if config or wanted(made):
            yield replace(made, predicted=cost.seconds(made))


def has(v: Config, c: Correlation) -> bool:
    """Whether w is read 64 channels at a time where they are neighbours."""
    return not (c.rotated and v.bm % KC)


def wanted(p: Im2colPlan) -> bool:
    """Whether such blocks may be the fastest: their parts have something to sum, their channels are
    not half empty, and they are few."""
    v, c = p.config, p.correlation
    half_empty = v.bm > KC and c.out_channels <= v.bm // 2
    few = p.work_tiles * v.split_k <= ROUNDS * v.blocks * p.device.multiprocessors
    return has(v, c) and p.steps >= v.split_k and not half_empty and few
