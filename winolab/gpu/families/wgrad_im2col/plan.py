"""Filter gradients by direct products on wgmma, of copies that walk positions: FP16, BF16, FP32.

Nothing is transformed, and nothing found beside the first position of a step: that is faster than
sums by columns where a block has few steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.arguments.words import plural
from winolab.gpu.families.clusters import MOST_SHARED, MOST_SPLITS, MOST_SUMS
from winolab.gpu.families.direct_products import DirectGradient, fitting, tf32_arithmetic
from winolab.gpu.families.wgrad_im2col import cost, launch
from winolab.gpu.families.wgrad_im2col.config import CONFIGS, TF32_CONFIGS, Config
from winolab.gpu.families.wgrad_im2col.source import source
from winolab.gpu.families.wgrad_im2col.tiling import Tiling
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.request import Request, Sum

VECTOR, SPLIT_VECTOR = 8, 4  # channels of 16 bytes, as tensor maps have pixels apart


@dataclass(frozen=True)
class WgradIm2colPlan(Tiling, DirectGradient):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    predicted: float = 0.0  # seconds

    workspace = 0

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        return tf32_arithmetic(self.depth) if self.config.tf32 else super().simulated

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed: by the blocks of a cluster, in 16 bits of 64 output channels by
        two warpgroups each, whose sums are added in FP32."""
        halves = 2 if self.config.bo == 64 and not self.config.tf32 else 1
        parts = self.config.split_k * halves
        return (Sum(1.0, max(1.0, self.gradient.products / parts), parts),)

    def __str__(self) -> str:
        v = self.config
        cluster = f", {v.split_k} of a cluster" if v.split_k > 1 else ""
        grid = [f"grid       {plural(self.work_tiles * v.split_k, 'block')}{cluster}"]
        block = f"{v.bo} × {v.bi} channels of a tap, {self.depth} positions a step"
        return self.told(block, grid)

    def source(self) -> str:
        """The translation unit of the kernel."""
        return source(self.precision, self.out_dtype, self.config, self.rank)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_wgrad_im2col": self.config.shared_memory}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        launch.launch(self, kernels, a, b, out)


def plans(request: Request) -> Iterator[WgradIm2colPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    what = "direct products of copies by position"
    config, parts = request.config_of(Config), request.precision == "fp32_split"
    g = fitting(request, what, SPLIT_VECTOR if parts else VECTOR)
    if 0 in (g.batch, *g.output):
        raise ValueError(f"{what} need something to sum")
    if config and not (config.runs and config.tf32 == parts):
        raise ValueError(
            f"{config}: blocks have 64, 128, 192 or 256 output channels, 32 to 256 input channels "
            f"by 32, {MOST_SUMS} sums at most, clusters of up to {MOST_SPLITS}, and of 2 stages "
            f"and more as many as hold the sums and fit into {MOST_SHARED} B; tf32 is FP32's"
        )
    problem, device = request.problem, request.device
    for v in (config,) if config else TF32_CONFIGS if parts else CONFIGS:
        made = WgradIm2colPlan(problem, g, request.precision, request.stored, v, device)
        if not made.steps >= v.split_k and not config:
            continue
        if unreached := made.unreached():
            raise ValueError(f"{what} serve {unreached}")
        yield replace(made, predicted=cost.seconds(made))
