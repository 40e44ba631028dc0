"""Γ8(n,r) in FP32 on Tensor Cores, by products of 16-bit parts: plans, source and launch.

Forward and backward data; wider filters run in pieces of r taps. Four launches: the largest
elements of w and x, from which the scales follow, the transformed filter, and everything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from winolab.device import Device
from winolab.gpu.emit import unit
from winolab.gpu.launch import INT, LONG, POINTER, Kernels, Layout, View
from winolab.gpu.plan import Correlation
from winolab.nouns import Algorithm, Problem, Tile
from winolab.ref.errors import ADMISSIBLE, error_ratio
from winolab.ref.transforms import Matrix, transforms

THREADS = 384  # of a block: 8 consumer and 4 producer warps
ARCHITECTURE = (9, 0)  # wgmma is 9.0's alone
ALPHA, PARTS, KC, BN = 8, 2, 16, 64
TILES = 64  # of a block
WIDTHS = range(2, 8)  # r of the tiles; wider filters run in pieces of r
SCALING = "filter"  # of the transforms: equal sizes of G's rows spare exponents of the 16-bit parts
# Fitted to an H100's times of Γ8(6,3): cycles of a stage of 16 channels and three filter
# rows, which 96 transformed tiles serve, and of an item's prologue and epilogue.
STAGE_CYCLES, STAGE_TILES, STAGE_ROWS, ITEM_CYCLES = 5900, 96, 3, 14000
BANDWIDTH, LAUNCH_SECONDS = 2.4e12, 3e-6  # of the pass over x
SCALE_THREADS, SCALE_ELEMENTS = 256, 8192  # of a block of the scale pass, at least
COUNTER, PARTIALS = 16, 64  # bytes from the start of the workspace, behind the scales

# The kernels' parameter structs, field for field.
SCALE_PARAMS = Layout(
    ("x partial other counter scales", POINTER),
    ("batch_stride depth_stride row_stride pixel_stride channel_stride vectors", LONG),
    ("depth height width run wide others", INT),
)
FILTER_PARAMS = Layout(
    ("w u scales", POINTER),
    ("m_stride c_stride depth_stride row_stride width_stride", LONG),
    ("out_channels channels taps taps_height taps_width chunks", INT),
)
PARAMS = Layout(
    ("x u y scales", POINTER),
    ("x_batch x_depth x_row y_batch y_depth y_row", LONG),
    ("x_pixel y_pixel", INT),
    ("depth height width out_depth out_height out_width", INT),
    ("pad_depth pad_height pad_width taps_depth taps_height taps_width", INT),
    ("channels out_channels tiles_width columns chunks blocks_m blocks_row items", INT),
)


@dataclass(frozen=True)
class Variant:
    """Block shape: 64 output channels × rows × 64 / rows tiles, filter rows that share a stage."""

    rows: int = 4
    share: int = 1
    v_stages: int = 2
    passes: int = 2
    ring: int = 4
    consumer_registers: int = 208
    producer_registers: int = 88

    @property
    def columns(self) -> int:
        """Tile columns of a block."""
        return TILES // self.rows

    @property
    def stage_tiles(self) -> int:
        """Transformed tiles of a stage."""
        return (self.rows + self.share - 1) * self.columns

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's struct Shared."""
        v = self.v_stages * ALPHA * PARTS * self.stage_tiles * KC * 2
        raw = -(-self.stage_tiles // 32) * ALPHA * 128 * 16
        out = ALPHA * TILES // self.passes * (BN + 4) * 4
        return v + raw + out + 12 * TILES + 16 * self.v_stages + 16

    def __str__(self) -> str:
        return f"rows={self.rows} share={self.share} stages={self.v_stages}"


VARIANTS = tuple(Variant(rows, share) for rows, share in ((4, 3), (4, 2), (4, 1), (1, 1)))


@dataclass(frozen=True)
class GammaTensorPlan:
    """One call: what is computed, by which kernels, on what grid, at what cost."""

    direction: str
    problem: Problem
    correlation: Correlation
    tile: Tile
    points: str
    variant: Variant
    device: Device
    predicted: float = 0.0  # seconds, all launches
    precision: str = "fp32_split"

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
        """Stages of 16 channels."""
        return -(-self.correlation.channels // KC)

    @property
    def blocks_m(self) -> int:
        """Blocks of 64 output channels."""
        return -(-self.correlation.out_channels // BN)

    @property
    def blocks_row(self) -> int:
        """Blocks of output rows."""
        return -(-self.correlation.output[1] // self.variant.rows)

    @property
    def tiles_width(self) -> int:
        """Tiles of a row of outputs."""
        return -(-self.correlation.output[2] // self.tile.n)

    @property
    def columns(self) -> int:
        """Tile columns: of all images and depths, one for every n outputs of the width."""
        return self.correlation.batch * self.correlation.output[0] * self.tiles_width

    @property
    def items(self) -> int:
        """Blocks' worth of work: the grid walks over them."""
        return self.blocks_m * self.blocks_row * -(-self.columns // self.variant.columns)

    @property
    def grid(self) -> int:
        """Blocks."""
        return max(1, min(self.items, self.device.multiprocessors))

    @property
    def transformed(self) -> int:
        """Bytes of the transformed filter of a group; groups follow one another there."""
        return self.blocks_m * math.prod(self.outer) * self.chunks * ALPHA * PARTS * 2048

    @property
    def scale_blocks(self) -> tuple[int, int]:
        """Blocks of the scale pass over x and over w."""
        p, c = self.problem, self.correlation
        most = 4 * self.device.multiprocessors
        sizes = c.batch * math.prod(c.input) * c.channels * c.groups, math.prod(p.w_shape)
        first, second = (max(1, min(most, -(-size // SCALE_ELEMENTS))) for size in sizes)
        return first, second

    @property
    def header(self) -> int:
        """Bytes of the workspace before the transformed filter: scales and partial maxima."""
        return -(-(PARTIALS + 4 * sum(self.scale_blocks)) // 256) * 256

    @property
    def workspace(self) -> int:
        """Bytes."""
        return self.header + self.transformed

    def __str__(self) -> str:
        p, v = self.problem, self.variant
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} fp32_split, points {self.points}",
                f"block      {BN} channels × {v.rows} rows × {v.columns} tiles, "
                f"{KC} channels a stage",
                f"policies   {v}",
                f"grid       {self.grid} blocks of {THREADS} threads, {self.items} items",
                f"memory     {v.shared_memory} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of the three kernels."""
        return source(self.tile, self.points, self.variant)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        gamma = self.variant.shared_memory
        return {"winolab_scale": 0, "winolab_filter": 0, "winolab_gamma": gamma}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        c, p = self.correlation, self.problem
        u = workspace + self.header
        first, second = self.scale_blocks
        of_x, of_w = workspace + PARTIALS, workspace + PARTIALS + 4 * first
        w_sizes = (p.out_channels, *c.filter, p.in_channels // c.groups)
        x_sizes = (c.batch, *c.input, c.channels * c.groups)
        for view, sizes, strides, wide, blocks, partial, others in (
            (b, w_sizes, b.strides, 0, second, of_w, 0),
            (a, x_sizes, (*a.strides, 1), 1, first, of_x, second),
        ):
            *sizes, run = _merged(sizes, strides)
            vector = 4 if wide else 1
            params = SCALE_PARAMS.pack(
                view.address,
                partial,
                of_w,
                workspace + COUNTER,
                workspace,
                *strides,
                math.prod(sizes) * run // vector,
                *sizes[1:],
                run // vector,
                wide,
                others,
            )
            kernels["winolab_scale"]((blocks, 1, 1), SCALE_THREADS, params)
        for group in range(c.groups):
            self._transform_filter(kernels, group, b, workspace, u)
            self._correlate(kernels, group, a, workspace, u, out)

    def _transform_filter(self, kernels: Kernels, group: int, w: View, scales: int, u: int) -> None:
        c = self.correlation
        m_stride, *taps, c_stride = w.strides
        m_total = c.channels if c.rotated else c.out_channels
        address = w.address + 4 * group * m_total * m_stride
        if c.rotated:
            address += 4 * sum((r - 1) * s for r, s in zip(c.filter, taps, strict=True))
            taps = [-s for s in taps]
            m_stride, c_stride = c_stride, m_stride
        params = FILTER_PARAMS.pack(
            address,
            u,
            scales,
            m_stride,
            c_stride,
            *taps,
            c.out_channels,
            c.channels,
            math.prod(self.outer),
            *self.outer[1:],
            self.chunks,
        )
        grid = (self.blocks_m, self.chunks, math.prod(self.outer))
        kernels["winolab_filter"](grid, 128, params)

    def _correlate(
        self, kernels: Kernels, group: int, x: View, scales: int, u: int, y: View
    ) -> None:
        c = self.correlation
        params = PARAMS.pack(
            x.address + 4 * group * c.channels,
            u,
            y.address + 4 * group * c.out_channels,
            scales,
            *x.strides[:3],
            *y.strides[:3],
            x.strides[3],
            y.strides[3],
            *c.input,
            *c.output,
            *c.padding,
            *self.outer,
            c.channels,
            c.out_channels,
            self.tiles_width,
            self.columns,
            self.chunks,
            self.blocks_m,
            self.blocks_row,
            self.items,
        )
        kernels["winolab_gamma"]((self.grid, 1, 1), THREADS, params)


def _merged(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Sizes of five axes, the last one grown by those that it follows without gaps."""
    merged, step = list(sizes), strides[-1]
    for axis in range(3, -1, -1):
        gap = merged[axis] != 1 and strides[axis] != step * merged[-1]
        if gap or merged[-1] * merged[axis] >= 1 << 31:
            break
        merged[-1] *= merged[axis]
        merged[axis] = 1
    return merged


@lru_cache(maxsize=64)
def source(tile: Tile, points: str, variant: Variant) -> str:
    """The translation unit of one variant of Γ8(n,r)."""
    made = transforms(tile.n, tile.r, points, SCALING)
    constants = {"N": tile.n, "R": tile.r, "ALPHA": ALPHA, "PARTS": PARTS, "BF16": 0, "WIDE": 1}
    constants |= {"KC": KC, "BN": BN, "GROUP": 1, "XVEC": 4, "YVEC": 4}
    constants |= {"SCALE_INPUT": _growth(made.BT), "SCALE_FILTER": _growth(made.G)}
    constants |= {name.upper(): value for name, value in asdict(variant).items()}
    programs = made.programs
    return unit(
        f"Γ8({tile.n},{tile.r}) fp32_split, points {points}, {variant}",
        constants,
        {
            "transform_filter": programs.G,
            "transform_input": programs.BT,
            "transform_output": programs.AT,
        },
        ("tensor", "parts", "pipeline", "scale", "filter_tensor", "gamma_tensor"),
    )


def _growth(matrix: Matrix) -> int:
    """Exponent of the power of two that no element of matrix · v exceeds where |v| ≤ 1."""
    return math.ceil(math.log2(max(sum(abs(float(e)) for e in row) for row in matrix)))


def plans(
    problem: Problem,
    direction: str,
    device: Device,
    algorithm: Algorithm | None,
    precision: str,
    *,
    aligned: bool,
    variant: Variant | None = None,
    workspace_limit: int | None = None,
    out_dtype: str = "float32",
) -> Iterator[GammaTensorPlan]:
    """Every tile and block shape that can run. Raises ValueError where none can, and says why."""
    if variant is not None and not isinstance(variant, Variant):
        return
    if device.compute_capability != ARCHITECTURE:
        major, minor = device.compute_capability
        raise ValueError(
            f"{device.name} has compute capability {major}.{minor}; the Tensor Core kernels need "
            f"{ARCHITECTURE[0]}.{ARCHITECTURE[1]}; precision 'fp32' has others"
        )
    c = Correlation.of(problem, direction)
    if not aligned or c.channels % 4 or c.out_channels % 4 or not c.channels:
        raise ValueError(
            f"{c.channels} → {c.out_channels} channels a group"
            f"{'' if aligned else ' in arrays without 16-byte alignment'}; fp32_split needs "
            "multiples of 4 and 16-byte alignment; use precision 'fp32' or 'fp32_ffma'"
        )
    points = algorithm.points if algorithm else "best"
    height = c.filter[1]
    found = (variant,) if variant else VARIANTS
    shapes = [v for v in found if height % v.share == 0 and v.shared_memory <= device.shared_memory]
    if not shapes:
        raise ValueError(f"{variant} does not fit a filter {height} high on {device.name}")
    for tile in _tiles(c, algorithm):
        for shape in shapes:
            yield _predicted(GammaTensorPlan(direction, problem, c, tile, points, shape, device))


def _tiles(correlation: Correlation, algorithm: Algorithm | None) -> tuple[Tile, ...]:
    width = correlation.filter[2]
    if algorithm is None:
        tiles = (Tile(ALPHA + 1 - r, r) for r in WIDTHS if width % r == 0)
        found = tuple(t for t in tiles if error_ratio(t) <= ADMISSIBLE)
        if not found:
            raise ValueError(
                f"no Γ8 kernel in fp32_split has pieces of a filter {width} wide; use precision "
                "'fp32' or 'fp32_ffma'"
            )
        return found
    if algorithm.kind != "gamma" or algorithm.scaling or algorithm.variant:
        raise ValueError(
            f"fp32_split runs gamma algorithms without options, not {algorithm}; use precision "
            "'fp32' or 'fp32_ffma'"
        )
    (tile,) = algorithm.tiles
    if tile.alpha != ALPHA or tile.r not in WIDTHS:
        raise ValueError(f"{algorithm}: fp32_split has alpha 8; use precision 'fp32' for others")
    if width % tile.r:
        raise ValueError(f"{algorithm} has {tile.r} taps; the filter is {width} wide")
    return (tile,)


def _predicted(plan: GammaTensorPlan) -> GammaTensorPlan:
    """The plan with its predicted seconds: waves of blocks, and the passes before them."""
    c, v, device = plan.correlation, plan.variant, plan.device
    stages = math.prod(plan.outer) // v.share * plan.chunks
    stage = STAGE_CYCLES * max(v.share / STAGE_ROWS, v.stage_tiles / STAGE_TILES)
    cycles = stages * stage + ITEM_CYCLES
    seconds = -(-plan.items // device.multiprocessors) * cycles / device.clock
    seconds += plan.transformed / 1e12 + 2 * LAUNCH_SECONDS
    x = 4 * c.batch * math.prod(c.input) * c.channels * c.groups
    scale = x / BANDWIDTH + 2 * LAUNCH_SECONDS
    return replace(plan, predicted=c.groups * seconds + scale)
