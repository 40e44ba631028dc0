"""WinRS's planner: kernel pair, segment count (Algorithm 1), segments (Algorithm 2), their cost.

Pure Python and fast, so that it can be asked for GPUs that are not there. The reference runs what
it says; the GPU kernels do not: they have a planner of their own (winolab.gpu.families.wgrad).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from winolab.algorithm import Algorithm, Problem, winrs
from winolab.arguments.values import whole
from winolab.arguments.words import plural
from winolab.device import Device, datasheet
from winolab.kind import ShowsText
from winolab.points import check_served, text_of
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winrs.kernels import Kernel, Pair, kernels, pair
from winolab.ref.algorithms.winrs.model import seconds
from winolab.ref.algorithms.winrs.segments import Segment, Shape, cut, shape
from winolab.ref.arithmetic.simulated import Arithmetic, Float

# The thresholds that Algorithm 1 leaves open: fitted, not published. BLOCKS_AN_INTENSITY brings the
# average workspace over the reconstructed grid (papers/winrs_2025/grid.py) next to the 37.9 MiB of
# Table 2, WORKSPACE_OF_DATA is that table's maximum; papers/winrs_2025/fits.py fits both.
# SEGMENT_FLOP changes the average by less than 5 % from 0.5 to 4 GFLOP.
FULL_BLOCKS = 1.0  # b̂2: blocks a multiprocessor with which one segment is enough
BLOCKS_AN_INTENSITY = 0.115  # k: blocks a multiprocessor, for each FLOP an element of intensity
SEGMENT_FLOP = 1e9  # Z2: least work of a segment
WORKSPACE_OF_DATA = 1.67  # Z_max: most workspace, in multiples of the data
ACCUMULATION = 512  # Algorithm 1, line 6: least products that a segment sums
DEFAULT_DEVICE = "h100"
# Product formats that run the kernels of FP16: a port changes the format only (section 8).
TENSOR_CORE = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2")


@dataclass(frozen=True)
class Plan(ShowsText):
    """What is decided about one filter gradient. Workspace in bytes, ``predicted`` in seconds."""

    problem: Problem
    device: Device
    precision: str
    pair: Pair
    shape: Shape
    segments: tuple[Segment, ...]
    workspace: int

    @property
    def blocks(self) -> int:
        """Blocks of all segments, groups included."""
        return sum(segment_blocks(self.problem, s.kernel) for s in self.segments)

    @property
    def segment_shape(self) -> tuple[int, ...]:
        """The largest segment of the first kernel: Ŝ_H × Ŝ_W."""
        sizes = [s.size for s in self.segments if s.kernel == self.pair.first]
        return tuple(map(max, zip(*sizes, strict=True)))

    @property
    def predicted(self) -> float:
        return seconds(self.problem, self.segments, self.device)

    def as_dict(self) -> dict:
        """What ``winolab plan --json`` prints."""
        return {
            "device": self.device.name,
            "precision": self.precision,
            "kernels": [str(k) for k in self.pair.kernels],
            "segments": len(self.segments),
            "segment_shape": list(self.segment_shape),
            "blocks": self.blocks,
            "workspace_bytes": self.workspace,
            "predicted_us": round(1e6 * self.predicted, 3),
        }

    def partition(self) -> dict:
        """dy's size and every segment: what a picture needs."""
        cuts = [
            {"kernel": str(s.kernel), "r": s.tile.r, "start": s.start, "size": s.size}
            for s in self.segments
        ]
        return {"output": self.problem.output, "cuts": cuts}

    def __str__(self) -> str:
        p = self.problem
        size = "×".join(map(str, self.segment_shape))
        return "\n".join(
            [
                f"backward filter x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"device     {self.device.name}, {self.device.multiprocessors} multiprocessors",
                f"kernels    {' and '.join(map(str, self.pair.kernels))}, {self.precision}",
                f"segments   {len(self.segments)} of up to {size}",
                f"blocks     {self.blocks}",
                f"workspace  {self.workspace} B",
                f"predicted  {1e6 * self.predicted:.1f} µs",
            ]
        )


def plan(
    problem: Problem,
    device: Device | str = DEFAULT_DEVICE,
    precision: str = "fp32",
    *,
    points: str = "best",
    admissible: bool = True,
    kernel: Kernel | None = None,
    segments: int | None = None,
    workspace_limit: int | None = None,
) -> Plan:
    """The plan of a filter gradient with stride and dilation 1 (others: plan their phases).

    ``admissible`` leaves out kernels of large error (α = 16 but for wide formats); ``kernel`` fixes
    the first kernel; ``segments`` replaces Algorithm 1's count; ``workspace_limit`` is in bytes.
    Raises ValueError where the filter's width has no kernel, the device is unknown, no plan stays
    within the limit, or a list of points serves no kernel of the plan.
    """
    if not isinstance(device, Device):
        device = datasheet(device)
    if workspace_limit is not None:
        workspace_limit = whole(workspace_limit, "workspace_limit")
    if segments is not None and whole(segments, "segments") < 1:
        raise ValueError(f"segments = {segments}; expected at least 1")
    if not problem.unit:
        raise ValueError(
            f"stride {problem.stride} and dilation {problem.dilation}: plan the problems of "
            "winolab.ref.algorithms.winrs.gradient.phases, which have neither"
        )
    points = text_of(points)
    if kernel is None:
        tiles = {k.tile for k in _all(precision)} - {DIRECT}
        check_served(points, tiles, f"a kernel of winrs in {precision}")
    choice = kernels(problem.filter[-1], precision, points, admissible)
    chosen = _pair(problem, choice, kernel, precision, device)
    tiles = {k.tile for k in chosen.kernels} - {DIRECT}
    if kernel is None and tiles:
        check_served(points, tiles, f"{' and '.join(map(str, chosen.kernels))} of the plan")
    count = segments or baseline(problem, chosen.first, device)
    made = _cut(problem, device, precision, chosen, count)
    if workspace_limit is None or made.workspace <= workspace_limit:
        return made
    while count > 1:
        count = min(count - 1, max(1, count * workspace_limit // max(1, made.workspace)))
        made = _cut(problem, device, precision, chosen, count)
        if made.workspace <= workspace_limit:
            return made
    for first in sorted(choice, key=lambda k: -k.throughput(device)):
        if workspace_limit >= 0 and kernel is None and problem.output[-1] % first.tile.r == 0:
            alone = Pair(first, problem.output[-1] // first.tile.r)
            return _cut(problem, device, precision, alone, 1)
    raise ValueError(
        f"{kernel or 'no kernel'} needs a workspace of {made.workspace} B; the limit is "
        f"{workspace_limit} B: raise it, or use winrs or direct"
    )


def _pair(problem, choice, kernel, precision, device) -> Pair:
    width, taps = problem.output[-1], problem.filter[-1]
    if kernel is not None:
        if taps % kernel.tile.n:
            raise ValueError(
                f"{kernel} computes {plural(kernel.tile.n, 'tap')}; the filter has {taps}: its "
                f"width must be a multiple of {kernel.tile.n}; use winrs, dwm or direct"
            )
        return pair(width, (kernel,), choice, device)
    if taps > 1 and all(k.tile.n == 1 for k in choice):
        raise ValueError(
            f"no {precision} kernel computes a filter {taps} wide: widths are multiples of "
            f"{', '.join(map(str, sorted({k.tile.n for k in _all(precision)} - {1})))}; "
            "use dwm or direct"
        )
    return pair(width, choice, choice, device)


@lru_cache(maxsize=8)
def _all(precision: str) -> tuple[Kernel, ...]:
    return kernels(0, precision, "best", False)


def baseline(
    problem: Problem, kernel: Kernel, device: Device, intensity: float = BLOCKS_AN_INTENSITY
) -> int:
    """Ẑ, the segment count that Algorithm 1 wants. ``intensity`` replaces BLOCKS_AN_INTENSITY.

    The paper's threshold on Ẑ, k·N₂/N_SM, must be k·N_SM/b₂: so many blocks a multiprocessor.
    """
    bn, bm = kernel.block
    n = kernel.tile.n
    images = problem.batch * problem.groups
    inputs, outputs = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    b0 = -(-outputs // bn) * -(-images * math.prod(problem.output) // (n * bm))
    b1 = -(-inputs // bn) * -(-images * math.prod(problem.input) // (n * bm))
    b2 = segment_blocks(problem, kernel)
    z = (b0 + b1) / (1.45 * b2)
    if z < 2 and b2 >= FULL_BLOCKS * device.multiprocessors:
        return 1
    z1 = intensity * kernel.intensity * device.multiprocessors / b2
    z2 = 2 * problem.macs / SEGMENT_FLOP
    z = min(z, z1, z2, problem.batch * math.prod(problem.output) / ACCUMULATION)
    if z <= 1:
        return 1
    multiple = min(2 ** math.ceil(math.log2(z)), 8)
    most = 1 + int(WORKSPACE_OF_DATA * data_size(problem) / (4 * math.prod(problem.w_shape)))
    return min(multiple * math.ceil(z / multiple), most)


def data_size(problem: Problem) -> int:
    """Bytes of x, dy and dw in FP32."""
    return 4 * sum(map(math.prod, (problem.x_shape, problem.y_shape, problem.w_shape)))


def segment_blocks(problem: Problem, kernel: Kernel) -> int:
    """b2, the blocks of one segment: channels, leading taps and tiles of the last dimension."""
    bn, bm = kernel.block
    inputs, outputs = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    taps = math.prod(problem.filter) // kernel.tile.n
    return problem.groups * -(-outputs // bn) * -(-inputs // bm) * taps


def _cut(problem: Problem, device: Device, precision: str, chosen: Pair, count: int) -> Plan:
    shaped = shape(problem, chosen, count)
    made = cut(problem, chosen, shaped)
    workspace = 4 * (len(made) - 1) * math.prod(problem.w_shape)
    return Plan(problem, device, precision, chosen, shaped, made, workspace)


def partition(
    problem: Problem, algorithm: Algorithm, arithmetic: Arithmetic
) -> tuple[Segment, ...]:
    """The segments of an "omega" or "winrs" algorithm on a problem with stride and dilation 1."""
    precision = "fp32"
    if isinstance(arithmetic, Float) and arithmetic.product.name in TENSOR_CORE:
        precision = "fp16"
    if problem.filter[-1] == 1:
        # A phase of a strided filter can be one tap wide: nothing to save.
        algorithm = winrs(segments=algorithm.segments, device=algorithm.device)
    kernel = None
    if algorithm.kind == "omega":
        kernel = Kernel(algorithm.tiles[0], precision)
    device = algorithm.device or DEFAULT_DEVICE
    return plan(
        problem,
        device,
        precision,
        points=algorithm.points,
        kernel=kernel,
        segments=algorithm.segments or (1 if kernel else None),
    ).segments
