"""Filter gradients by direct products of split FP32 data on wgmma: plans, source and launch.

What omega_direct.py is for 16 bits: nothing is transformed, and the workspace holds no more than
headers and segments' sums, where Ωα(n,r) takes 1.8 times the data. Two launches sample x and dy
for their scales, one computes every segment's share of the sum and watches it (kernels/guard.cuh);
where there are several, a last one adds the shares up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache

from winolab.gpu import scale
from winolab.gpu.direct_gradients import CONSUMERS, TILE, fitting, shapes
from winolab.gpu.emit import unit
from winolab.gpu.launch import POINTER, Kernels, Layout, Params, View
from winolab.gpu.omega_direct import OmegaDirectPlan, cut
from winolab.gpu.omega_plan import (
    LAUNCH_SECONDS,
    POSITIONS,
    Gradient,
    parameters,
)
from winolab.gpu.omega_plan import reduce as add_up
from winolab.gpu.plan import Correlation, Request
from winolab.ref.transforms import transforms

VECTOR = 4  # channels of a load
BEYOND = 4  # times as many positions as producers are described behind the last, at most
# Of a block's start and end, where results are held against its channels' sums of squares: without
# these 32 images of 56² × 64 took 25 µs more than predicted, 14² × 256 11.
BLOCK_CYCLES = 55_000
HEADERS = 2 * scale.HEADER  # bytes at the start of the workspace: x's, with the flags, and dy's

SPLIT_PARAMS = Layout(("x_header dy_header", POINTER))  # behind omega_plan's


@dataclass(frozen=True)
class Variant:
    """The compile-time shape of the kernel: policies of kernels/omega_split.cuh, by its names."""

    n: int  # taps of a filter row that share a stage of x
    bi: int  # input channels of a block
    bo: int  # output channels of a block: 64, or 64 of each warpgroup
    stages: int
    producers: int  # threads that load, split and store
    raw: int  # stages of FP32 on their way in shared memory; 0: one in registers
    sums: int = 1  # partial sums of a consumer: with two, one is added while the next is computed
    kc: int = 64  # positions of a stage

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's struct Shared."""
        rows = self.kc + (8 if self.n > 1 else 0)
        stage = 2 * 128 * (self.bo // 64 * self.kc + self.bi // 64 * rows)
        watched = 4 * (self.bo + self.bi) + 8
        raw = self.raw * (4 * self.kc * (self.bo + self.bi) + max(16, 4 * (self.n - 1) * self.bi))
        size = self.stages * (stage + 16) + (raw or 32) + 3 * 16 * self.producers + watched
        return -(-size // 16) * 16

    def __str__(self) -> str:
        block = f"{self.bo}x{self.bi}x{self.kc} taps={self.n} stages={self.stages}"
        return f"{block} producers={self.producers} raw={self.raw} sums={self.sums}"


# Block shapes, and multiply-adds a cycle of an H100's multiprocessor, of at most 683 with three
# products each: 40 times within 8 %. With 128 output channels registers hold half a stage on its
# way, which the compiler loads only when it is needed: copies to shared memory take 20 % less time,
# with 64 they take 5 to 10 % more.
VARIANTS = {
    Variant(1, 128, 128, 2, 256, 1): 240,
    Variant(2, 64, 64, 3, 256, 3): 208,
    Variant(3, 64, 128, 2, 256, 2): 370,
    Variant(3, 64, 64, 6, 256, 0): 304,
    Variant(4, 64, 64, 6, 256, 0): 367,
}


@dataclass(frozen=True)
class OmegaSplitPlan(OmegaDirectPlan):
    """One call: as omega_direct's, with headers before the segments' sums."""

    variant: Variant
    watched: bool = True

    def source(self) -> str:
        """The translation unit of the kernels."""
        return source(self.variant)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel; ``winolab_scan`` comes with scale.cuh."""
        main = {"winolab_omega_split": self.variant.shared_memory}
        return main | dict.fromkeys(("winolab_scale", "winolab_scan", "winolab_reduce"), 0)

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        g, v = self.gradient, self.variant
        headers = workspace, workspace + scale.HEADER
        for view, direction, header in zip(
            (a, b), ("forward", "backward_data"), headers, strict=True
        ):
            c = Correlation.of(self.problem, direction)  # whose input the array is
            early = header != workspace and self.device.early_launches  # x's beside it
            scale.scale(kernels, scale.parameters(c, header, 0, view, wide=True), early)
        buckets, pitch = workspace + HEADERS, self.pitch
        block = v.bi, v.bo, v.n
        params = Params.of(
            parameters(g, (a, b, out), buckets, block, self.segments, pitch, self.blocks),
            SPLIT_PARAMS.pack(*headers),
        )
        grid, threads = (self.blocks * self.segments, 1, 1), CONSUMERS + v.producers
        kernels["winolab_omega_split"](grid, threads, params)
        if self.segments > 1:
            add_up(kernels["winolab_reduce"], g, out, buckets, self.segments)


@lru_cache(maxsize=64)
def source(variant: Variant) -> str:
    """The translation unit of one variant: scales, products, and the sum of the segments."""
    constants = {
        "R": 1,
        "ALPHA": 1,
        "WRAP": 0,
        "FIRST": 0,
        "PARTS": 2,
        "BF16": 0,
        "WIDE": 1,
        "YVEC": 4,
        **{name.upper(): value for name, value in asdict(variant).items()},
        **scale.constants(TILE, transforms(TILE.n, TILE.r)),
        **scale.BLOCKS,
    }
    return unit(
        f"Ω2(1,1) fp32_split, {variant}",
        constants,
        {},
        (
            *("guard", "pipeline", "tensor", "fp32", "parts", "scale", "units"),
            *("split_stage", "split_produce", "split_watch", "omega_split", "reduce"),
        ),
    )


def plans(request: Request) -> Iterator[OmegaSplitPlan]:
    """Every block shape that can run. Raises ValueError where none can, and says why."""
    otherwise = "; with a workspace omega computes any, precision 'fp32_ffma' without one"
    g = fitting(request, "direct split products", VECTOR, otherwise)
    for shape in shapes(request, g, VARIANTS):
        yield _plan(request, g, shape)


def _plan(request: Request, g: Gradient, v: Variant) -> OmegaSplitPlan:
    positions = g.units(TILE, g.output[2] + v.n - 1)
    if positions + BEYOND * v.producers >= POSITIONS:
        raise ValueError(
            f"dy has {positions} positions; direct split products count up to 2^31, of which they "
            f"describe {BEYOND * v.producers} ahead; cut the batch"
        )
    limit = None if request.workspace_limit is None else request.workspace_limit - HEADERS
    blocks, segments, seconds = cut(request, g, v, VARIANTS, BLOCK_CYCLES, limit)
    return OmegaSplitPlan(
        request.problem,
        g,
        request.precision,
        "float32",  # whatever is wanted: the caller converts it
        v,
        request.device,
        segments.count,
        blocks,
        HEADERS + segments.workspace,
        seconds + 2 * LAUNCH_SECONDS,
    )
