"""Which kernel runs a problem, and how: pure Python, no GPU needed.

A direction of a convolution is first brought to the one form that the kernels run, a Correlation;
then the variants that can run it are enumerated, timed by a model, and the fastest becomes a Plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache

from winolab.device import Device
from winolab.nouns import Algorithm, Problem, Tile
from winolab.ref.errors import ADMISSIBLE, error_ratio

DIRECTIONS = ("forward", "backward_data")
THREADS = 384  # of a block: 8 consumer and 4 producer warps
ARCHITECTURE = (9, 0)  # the bulk copies and register reallocation of kernels/pipeline.cuh
# Fitted to the rows of experiments/results/throughput.jsonl: an FFMA's issue slots beyond the first
# grow with the operands loaded for it, a transformed tile and channel takes issue slots and latency
# per state, an item has a prologue and an epilogue (cycles).
OPERAND_OVERHEAD, TRANSFORM_SLOTS, ITEM_CYCLES = 1.15, 30, 6000
LAUNCH_SECONDS = 6e-6
CLUSTER_SHARE = 0.88


@dataclass(frozen=True)
class Correlation:
    """y[m] = Σ_c x[c] ⋆ w[m, c] per group, unit stride, always three spatial dimensions.

    Backward data is one too: x is dy, channels swap, the filter is rotated and the padding is
    r − 1 − p, which may be negative.
    """

    batch: int
    groups: int
    channels: int  # of a group, summed over
    out_channels: int  # of a group
    input: tuple[int, int, int]
    output: tuple[int, int, int]
    filter: tuple[int, int, int]
    padding: tuple[int, int, int]  # before the first element
    rotated: bool

    @classmethod
    def of(cls, problem: Problem, direction: str) -> Correlation:
        """The correlation that computes ``direction`` of ``problem``.

        Raises ValueError for strides and dilation, which the reference serves.
        """
        if direction not in DIRECTIONS:
            raise ValueError(f"direction {direction!r}; expected one of {', '.join(DIRECTIONS)}")
        if not problem.unit:
            raise ValueError(
                f"the CUDA kernels need stride 1 and dilation 1, not stride {problem.stride} and "
                f"dilation {problem.dilation}; NumPy arrays run on the reference, which has both"
            )
        if problem.ndim > 3:
            raise ValueError(f"{problem.ndim} spatial dimensions; the CUDA kernels have up to 3")
        pad = tuple(lo for lo, _ in problem.padding)
        channels, out_channels = problem.in_channels, problem.out_channels
        input_, output = problem.input, problem.output
        if direction == "backward_data":
            pad = tuple(r - 1 - p for r, p in zip(problem.filter, pad, strict=True))
            channels, out_channels = out_channels, channels
            input_, output = output, input_
        return cls(
            problem.batch,
            problem.groups,
            channels // problem.groups,
            out_channels // problem.groups,
            _three(input_, 1),
            _three(output, 1),
            _three(problem.filter, 1),
            _three(pad, 0),
            direction == "backward_data",
        )

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute."""
        return 0 in (self.batch, self.out_channels, *self.output)

    @property
    def flops(self) -> int:
        """Of direct convolution, an FMA being two."""
        return (
            2
            * self.batch
            * self.groups
            * math.prod(self.output)
            * math.prod(self.filter)
            * self.channels
            * self.out_channels
        )


@dataclass(frozen=True)
class Variant:
    """The compile-time shape of one kernel: policies of kernels/gamma.cuh, by its names."""

    bn: int  # output channels of a block
    bt: int  # tiles of a block: rows × columns
    u_stages: int
    v_stages: int
    passes: int  # over the staging memory of the epilogue
    cpt: int  # channels that a producer thread transforms at once
    rows: int = 1  # output rows of a block
    share: int = 1  # filter rows that a transformed stage of input serves
    kc: int = 8  # channels of a stage
    split: int = 1  # blocks of a cluster that share a summation
    xvec: int = 4  # floats of a load of x; 1 where channels or addresses are not aligned
    yvec: int = 2  # floats of a store of y
    consumer_registers: int = 200
    producer_registers: int = 104

    def constants(self) -> dict[str, int]:
        """The constants of the source, by name."""
        return {name.upper(): value for name, value in asdict(self).items()}

    @property
    def v_stride(self) -> int:
        """Floats between the channels of V: see kernels/gamma.cuh."""
        tiles = (self.rows + self.share - 1) * (self.bt // self.rows)
        lanes, step = self.kc // self.cpt, 4 * self.cpt
        apart = -(-(32 // lanes) // step) * step % 32
        stride = -(-tiles // 4) * 4
        while self.cpt * stride % 32 != apart:
            stride += 4
        return stride

    def lane(self, alpha: int) -> tuple[int, int]:
        """Output channels × tiles of a consumer lane, in each of its warp's states."""
        return self.bn // 8, self.bt * min(alpha, 8) // 32

    def shared_memory(self, alpha: int) -> int:
        """Bytes of the kernel's struct Shared."""
        floats = alpha * self.kc * (self.u_stages * self.bn + self.v_stages * self.v_stride)
        floats += alpha * self.bt * self.bn // self.passes
        return 4 * floats + 12 * self.bt + 16 * (self.u_stages + self.v_stages)

    def __str__(self) -> str:
        names = ("rows", "share", "split", "xvec", "yvec")
        changed = [
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)
            if f.name in names and getattr(self, f.name) != f.default
        ]
        stages = f"{self.u_stages}+{self.v_stages}"
        return " ".join([f"{self.bn}x{self.bt}x{self.kc} stages={stages}", *changed])


# Block shapes by number of states. 32,768 accumulators a block fill the registers of 256 consumer
# threads; blocks of half that serve small problems. Alpha 1 is the implicit GEMM.
VARIANTS: dict[int, tuple[Variant, ...]] = {
    1: (Variant(128, 256, 4, 4, 2, 4), Variant(64, 256, 4, 4, 1, 4)),
    4: (
        Variant(128, 64, 4, 3, 2, 4),
        Variant(64, 128, 4, 3, 2, 4),
        Variant(64, 64, 4, 3, 1, 4),
    ),
    8: (Variant(128, 32, 4, 2, 2, 4), Variant(64, 64, 4, 2, 2, 4), Variant(64, 32, 4, 3, 1, 4)),
    16: (
        Variant(64, 32, 3, 2, 2, 2),
        Variant(32, 32, 3, 2, 1, 2),
    ),
}
# Widths r that each alpha serves, Im2col-Winograd's kernels; wider filters run in pieces of r.
WIDTHS = {4: range(2, 4), 8: range(2, 8), 16: range(7, 10)}
SPLITS = (1, 2, 4, 8)
ROWS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Plan:
    """Everything about one call: what is computed, by which kernel, on what grid, at what cost."""

    direction: str
    problem: Problem
    correlation: Correlation
    tile: Tile
    points: str
    variant: Variant
    device: Device
    grid: int  # blocks
    items: int  # blocks' worth of work: the grid walks over them
    tiles_width: int
    blocks_row: int
    workspace: int  # bytes: the transformed filter of one group
    predicted: float  # seconds, filter transform included

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel."""
        return f"Γ{self.tile.alpha}({self.tile.n},{self.tile.r})"

    @property
    def outer(self) -> tuple[int, int, int]:
        """Taps that are summed directly, per dimension."""
        depth, height, width = self.correlation.filter
        return depth, height, width // self.tile.r

    @property
    def chunks(self) -> int:
        """Stages of KC channels."""
        return -(-self.correlation.channels // self.variant.kc)

    @property
    def blocks_m(self) -> int:
        """Blocks of BN output channels."""
        return -(-self.correlation.out_channels // self.variant.bn)

    @property
    def columns(self) -> int:
        """Tile columns: of all images and depths, one for every n outputs of the width."""
        return self.correlation.batch * self.correlation.output[0] * self.tiles_width

    @property
    def shared_memory(self) -> int:
        """Bytes of a block."""
        return self.variant.shared_memory(self.tile.alpha)

    def __str__(self) -> str:
        p, v = self.problem, self.variant
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} fp32, points {self.points}",
                f"block      {v.bn} channels × {v.rows} rows × {v.bt // v.rows} tiles, "
                f"{v.kc} channels a stage",
                f"policies   {v}",
                f"grid       {self.grid} blocks of {THREADS} threads, {self.items} items",
                f"memory     {self.shared_memory} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )


@lru_cache(maxsize=4096)
def plan(
    problem: Problem,
    direction: str,
    device: Device,
    algorithm: Algorithm | None = None,
    *,
    aligned: bool = True,
    variant: Variant | None = None,
) -> Plan:
    """The fastest predicted Plan for ``direction`` of ``problem``.

    ``algorithm`` fixes the tile and the points ("gamma:8:6:3@paper", "direct"); None lets the
    planner choose the tile, with the best points, among those whose predicted error is at most
    ADMISSIBLE times direct's: α = 16 has to be asked for. ``aligned`` says whether the arrays
    allow vector loads. ``variant`` fixes the block shape. Raises ValueError where nothing can run,
    and says why.
    """
    if device.compute_capability < ARCHITECTURE:
        major, minor = device.compute_capability
        raise ValueError(
            f"{device.name} has compute capability {major}.{minor}; the kernels need "
            f"{ARCHITECTURE[0]}.{ARCHITECTURE[1]} or later"
        )
    correlation = Correlation.of(problem, direction)
    points = algorithm.points if algorithm else "best"
    tiles = _tiles(correlation, algorithm)
    plans = [
        _plan(problem, direction, correlation, tile, points, shape, device)
        for tile in tiles
        for shape in _variants(tile, correlation, device, aligned, variant)
    ]
    if not plans:
        raise ValueError(
            f"no block of {algorithm or 'any kernel'} fits the {device.shared_memory} B of shared "
            f"memory of {device.name}"
        )
    return min(plans, key=lambda p: p.predicted)


def _tiles(correlation: Correlation, algorithm: Algorithm | None) -> tuple[Tile, ...]:
    width = correlation.filter[2]
    if algorithm is None:
        tiles = (Tile(a - r + 1, r) for a in WIDTHS for r in WIDTHS[a] if width % r == 0)
        return (Tile(1, 1), *(t for t in tiles if error_ratio(t) <= ADMISSIBLE))
    if algorithm.kind == "direct":
        return (Tile(1, 1),)
    if algorithm.kind != "gamma" or algorithm.scaling or algorithm.variant:
        raise ValueError(
            f"the CUDA kernels run gamma and direct algorithms without options, not {algorithm}"
        )
    (tile,) = algorithm.tiles
    if tile.alpha not in VARIANTS:
        alphas = ", ".join(map(str, sorted(VARIANTS)))
        raise ValueError(f"{algorithm}: the CUDA kernels have alpha {alphas}")
    if width % tile.r:
        raise ValueError(f"{algorithm} has {tile.r} taps; the filter is {width} wide")
    return (tile,)


def _variants(
    tile: Tile,
    correlation: Correlation,
    device: Device,
    aligned: bool,
    variant: Variant | None,
) -> Iterator[Variant]:
    height = correlation.filter[1]
    for shape in (variant,) if variant else VARIANTS[tile.alpha]:
        shape = replace(
            shape,
            xvec=shape.cpt if aligned and correlation.channels % shape.cpt == 0 else 1,
            yvec=2 if aligned and correlation.out_channels % 2 == 0 else 1,
        )
        if variant:
            shapes = [shape]
        else:
            shared = [r for r in ROWS if height > 1 and shape.bt // r >= 4]
            shapes = [shape, *(replace(shape, rows=r, share=height) for r in shared)]
        for s in shapes:
            while s.shared_memory(tile.alpha) > device.shared_memory and s.u_stages > 2:
                s = replace(s, u_stages=s.u_stages - 1)
            if s.shared_memory(tile.alpha) <= device.shared_memory:
                yield from (replace(s, split=n) for n in ((s.split,) if variant else SPLITS))


def _plan(
    problem: Problem,
    direction: str,
    correlation: Correlation,
    tile: Tile,
    points: str,
    variant: Variant,
    device: Device,
) -> Plan:
    alpha = tile.alpha
    depth, height, width = correlation.output
    tiles_width = -(-width // tile.n)
    rows, share = variant.rows, variant.share
    blocks_m = -(-correlation.out_channels // variant.bn)
    blocks_row = -(-height // rows)
    columns = variant.bt // rows
    items = blocks_m * blocks_row * -(-correlation.batch * depth * tiles_width // columns)
    outer = math.prod(correlation.filter) // tile.r
    chunks = -(-correlation.channels // variant.kc)
    # Clusters of 4 and more leave multiprocessors of a GPC idle that do not make up another one.
    usable = device.multiprocessors * (CLUSTER_SHARE if variant.split > 2 else 1)
    slots = max(1, int(usable / variant.split))
    grid = variant.split * max(1, min(items, slots))
    workspace = 4 * blocks_m * outer * chunks * alpha * variant.kc * variant.bn

    lane_m, lane_tiles = variant.lane(alpha)
    overhead = 1 + OPERAND_OVERHEAD * (1 / lane_m + 1 / lane_tiles)
    step = variant.kc * alpha * variant.bn * variant.bt / 128 * overhead
    step += variant.kc * (rows + share - 1) * columns / share * TRANSFORM_SLOTS * alpha / 128
    cycles = -(-outer * chunks // variant.split) * step + ITEM_CYCLES * (1 + (variant.split > 1))
    seconds = -(-items // slots) * cycles / device.clock
    seconds += workspace / 1e12 + LAUNCH_SECONDS
    return Plan(
        direction,
        problem,
        correlation,
        tile,
        points,
        variant,
        device,
        grid,
        items,
        tiles_width,
        blocks_row,
        workspace,
        seconds * correlation.groups,
    )


def _three(values: tuple[int, ...], fill: int) -> tuple[int, int, int]:
    depth, height, width = (fill,) * (3 - len(values)) + tuple(values)
    return depth, height, width
