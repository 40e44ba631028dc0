"""Launches of Ωα(n,r) on Tensor Cores: FP16, BF16, and FP32 by split FP16 parts.

x and dy are transformed once for all channel blocks and filter rows into the workspace, in chunks
where a limit asks for them; one launch then runs the products of all states and taps as matrix
products on wgmma or mma.sync, adding to what earlier chunks left; a last one sums the segments
(Kahan) and applies the output transform. Split products check their accuracy (fallback.cuh).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache, cached_property, lru_cache
from itertools import accumulate, product
from math import prod

from winolab.algorithm import Problem, Tile
from winolab.device import Device
from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.scale import SHARE
from winolab.gpu.families.wgrad import TYPES, Gradient
from winolab.gpu.families.wgrad_winograd.config import Chunk, Config, rounded
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.correlation import three
from winolab.gpu.planner.fallback import FLAGS
from winolab.gpu.planner.request import DTYPES, ITEMSIZE, BasePlan, Sum
from winolab.ref.algebra.transforms import transforms

TRANSFORM_PARAMS = layout("TransformParams", "wgrad_winograd/transform")
GEMM_PARAMS = layout("GemmParams", "wgrad_winograd/scheduler")
FINISH_PARAMS = layout("FinishParams", "wgrad_winograd/kernel")
SCALING = "power_of_two"  # of the rows of G and BT, so that states are about as large as data
ACCURATE = 10  # the largest alpha whose split products are as accurate as FFMA's


@dataclass(frozen=True)
class WgradWinogradPlan(BasePlan):
    """One filter gradient: what is computed, by which kernels, in which chunks, at what cost."""

    problem: Problem
    tile: Tile
    points: str
    precision: str
    out_dtype: str
    config: Config
    device: Device
    images: int  # of a chunk
    rows: int  # of dy, of a chunk
    batch: int  # images whose positions lie in one row
    segments: int  # of the sum over a chunk's positions
    slice: int  # taps whose sums the workspace holds at once
    predicted: float = 0.0  # seconds
    direction: str = "backward_filter"

    scaling = SCALING

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic; where AT is in FP64, it is taken for FP32."""
        return self.config.simulated(self.precision)

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed."""
        rows = self.problem.batch * prod(self.problem.output[:-1]) * Gradient.of(self.problem).met
        return (Sum(1.0, rows * self.units / self.segments),)

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel."""
        alpha = 2 if self.tile == Tile(1, 1) else self.tile.alpha
        return f"Ω{alpha}({self.tile.n},{self.tile.r})"

    @property
    def parts(self) -> int:
        """16-bit parts of an element."""
        return 2 if self.precision == "fp32_split" else 1

    @property
    def checks_accuracy(self) -> bool:
        """Whether results are held against what low parts may have lost (fallback.cuh).

        Not those of direct: a single weight may be near 0 by chance.
        """
        return self.parts == 2 and self.tile.alpha > 1

    @property
    def accurate(self) -> bool:
        """Whether its error is no larger than that of the FFMA kernels."""
        return self.parts == 1 or self.tile.alpha <= ACCURATE

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        return self.problem.in_channels // self.problem.groups

    @property
    def out_channels(self) -> int:
        """Output channels of a group."""
        return self.problem.out_channels // self.problem.groups

    @cached_property
    def sizes(self) -> tuple[tuple[int, int, int], ...]:
        """Input, output, filter, padding in front, in three dimensions."""
        p = self.problem
        pads = tuple(lo for lo, _ in p.padding)
        return three(p.input, 1), three(p.output, 1), three(p.filter, 1), three(pads, 0)

    @property
    def pieces(self) -> int:
        """Pieces of n taps of the filter's width."""
        return -(-self.problem.filter[-1] // self.tile.n)

    @property
    def taps(self) -> int:
        """Filter depths × rows × pieces."""
        depth, height, _ = self.sizes[2]
        return depth * height * self.pieces

    @property
    def units(self) -> int:
        """Units of r outputs in a row."""
        return -(-self.problem.output[-1] // self.tile.r)

    @property
    def tiles(self) -> tuple[Tile]:
        return (self.tile,)

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks along output and input channels."""
        v = self.config
        return -(-self.out_channels // v.bm), -(-self.channels // v.bn)

    @property
    def padded(self) -> tuple[int, int]:
        """Output and input channels, padded to whole blocks."""
        (m, n), v = self.blocks, self.config
        return m * v.bm, n * v.bn

    @property
    def pitch(self) -> int:
        """Positions of a row: a multiple of what one scale or one instruction covers."""
        granule = self.config.ks if self.parts == 2 else 16
        return -(-self.units * self.batch // granule) * granule

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """All images × blocks of rows of dy."""
        (_, height, _), (_, out_height, _), (_, taps, _), (_, pad, _) = self.sizes
        chunks = []
        for image, row in product(
            range(0, self.problem.batch, self.images), range(0, out_height, self.rows)
        ):
            images = min(self.images, self.problem.batch - image)
            rows = min(self.rows, out_height - row)
            first = min(max(0, row - pad), height)
            last = max(first, min(height, row + rows + taps - 1 - pad))
            chunks.append(Chunk(image, images, row, rows, first, last - first))
        return tuple(chunks)

    def positions(self, chunk: Chunk) -> tuple[int, int]:
        """Positions of dy and of x in a chunk."""
        (depth, _, _), (out_depth, _, _), _, _ = self.sizes
        row = -(-chunk.images // self.batch) * self.pitch
        return out_depth * chunk.rows * row, depth * chunk.x_rows * row

    @property
    def largest(self) -> tuple[int, int]:
        """Positions of dy and of x that the workspace holds."""
        (depth, height, _), (out_depth, _, _), (_, taps, _), _ = self.sizes
        row = -(-self.images // self.batch) * self.pitch
        return out_depth * self.rows * row, depth * min(height, self.rows + taps - 1) * row

    @cached_property
    def regions(self) -> dict[str, int]:
        """Offsets in the workspace, the flags first, and its end, in bytes."""
        most, (m, n) = self.largest, self.padded
        states = 2 * self.parts * self.tile.alpha
        scale = 4 if self.parts == 2 else 0
        sizes = {
            "flags": FLAGS if self.checks_accuracy else 0,
            "u": states * m * most[0],
            "v": states * n * most[1] * self.pieces,
            "u_scale": scale * (m // 64) * (most[0] // self.config.ks),
            "v_scale": scale * (n // 64) * (most[1] // self.config.ks) * self.pieces,
            "m": 4 * self.segments * self.tile.alpha * self.slice * m * n,
            "budget": 8 * self.slice * (m // 64) * (n // 64) if self.checks_accuracy else 0,
            "end": 0,
        }
        ends = accumulate(map(rounded, sizes.values()))
        return dict(zip(sizes, (0, *ends), strict=False))

    @property
    def workspace(self) -> int:
        """Bytes; groups follow one another in the same ones."""
        return self.regions["end"]

    def __str__(self) -> str:
        p, v, chunk = self.problem, self.config, self.chunks[0]
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} {self.precision}, points {self.points}",
                f"block      {v.bm} × {v.bn} channels of one state, {v.ks} positions a stage",
                f"policies   {v}",
                f"chunks     {len(self.chunks)} of {chunk.images} images × {chunk.rows} rows, "
                f"images by {self.batch}",
                f"segments   {self.segments}, {-(-self.taps // self.slice)} slices of taps",
                f"memory     {v.shared_memory(self.parts)} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    @property
    def least(self) -> float:
        """The least sum of |dw| of n taps, in budgets: FP32's error is then as large as the parts'.

        A state's sum over blocks of ks positions, each with a scale p, loses 2^-25/√3 of either
        operand, whose elements are at most 2^14: √(2/3) 2^-11 √(ks Σ p²).
        """
        terms = self.problem.batch * prod(self.problem.output)
        growth = _growth(self.tile, self.points)
        parts = SHARE * 2**0.5 * 2**14 * growth
        return self.tile.n * parts * (self.config.ks / terms) ** 0.5

    def source(self) -> str:
        """The translation unit of the kernels."""
        return source(self.tile, self.points, self.precision, self.out_dtype, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {
            "winolab_wgrad_winograd_transform": 0,
            f"winolab_wgrad_winograd_{self.config.products}": self.config.shared_memory(self.parts),
            "winolab_wgrad_winograd_budget": 0,
            "winolab_wgrad_winograd_finish": 0,
        }

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        size, out_size = ITEMSIZE[DTYPES[self.precision]], ITEMSIZE[self.out_dtype]
        slices = [range(t, min(t + self.slice, self.taps)) for t in range(0, self.taps, self.slice)]
        for group in range(self.problem.groups):
            x = View(a.address + size * group * self.channels, a.strides)
            dy = View(b.address + size * group * self.out_channels, b.strides)
            first_weight = out_size * group * self.out_channels * out.strides[0]
            dw = View(out.address + first_weight, out.strides)
            for chunk in self.chunks:  # one, where there are several slices
                first = group == 0 and chunk is self.chunks[0]
                self._transform(kernels, x, dy, workspace, chunk, first)
                for taps in slices:
                    self._products(kernels, workspace, chunk, taps)
                    if chunk is self.chunks[-1]:
                        self._finish(kernels, dw, workspace, taps)

    def _transform(
        self, kernels: Kernels, x: View, dy: View, workspace: int, chunk: Chunk, first: bool
    ) -> None:
        (depth, _, width), (out_depth, _, out_width), _, (_, _, pad) = self.sizes
        size, early = ITEMSIZE[DTYPES[self.precision]], self.device.early_launches and not first
        u, v, u_scale, v_scale = (
            workspace + self.regions[name] for name in ("u", "v", "u_scale", "v_scale")
        )
        m, n = self.padded
        params = TRANSFORM_PARAMS.pack(
            x.address + size * (chunk.image * x.strides[0] + chunk.x_row * x.strides[2]),
            v,
            v_scale,
            *x.strides,
            width,
            self.channels,
            n // 64,
            depth,
            chunk.x_rows,
            dy.address + size * (chunk.image * dy.strides[0] + chunk.row * dy.strides[2]),
            u,
            u_scale,
            *dy.strides,
            out_width,
            self.out_channels,
            m // 64,
            out_depth,
            chunk.rows,
            chunk.images,
            self.batch,
            -(-chunk.images // self.batch),
            self.units,
            self.pitch,
            pad,
            self.pieces,
            workspace if first and self.checks_accuracy else 0,
        )
        block = self.config.ks if self.parts == 2 else 16
        u_positions, v_positions = self.positions(chunk)
        blocks = u_positions // block * (m // 64) + v_positions // block * (n // 64) * self.pieces
        kernels["winolab_wgrad_winograd_transform"]((blocks, 1, 1), 16 * block, params, early)

    def _products(self, kernels: Kernels, workspace: int, chunk: Chunk, taps: range) -> None:
        tiles_m, tiles_n = self.blocks
        params = self._sums(workspace, chunk, taps, "m", self.segments)
        blocks = tiles_m * tiles_n * len(taps) * self.tile.alpha * self.segments
        early, threads = self.device.early_launches, self.config.threads
        kernel = kernels[f"winolab_wgrad_winograd_{self.config.products}"]
        kernel((blocks, 1, 1), threads, params, early)
        if self.checks_accuracy:
            m, n = self.padded
            params = self._sums(workspace, chunk, taps, "budget", 1)
            grid = (m // 64 * (n // 64), len(taps), 1)
            kernels["winolab_wgrad_winograd_budget"](grid, 256, params, early)

    def _sums(self, workspace: int, chunk: Chunk, taps: range, to: str, segments: int) -> Params:
        """Parameters of a kernel that sums over a chunk's positions into the region ``to``."""
        (depth, _, _), (out_depth, _, _), (_, taps_height, _), (pad_depth, pad, _) = self.sizes
        m, n = self.padded
        return GEMM_PARAMS.pack(
            *(workspace + self.regions[name] for name in ("u", "v", "u_scale", "v_scale", to)),
            *self.positions(chunk),
            m // 64,
            n // 64,
            *self.blocks,
            len(taps),
            taps.start,
            taps_height,
            self.pieces,
            segments,
            self.pitch,
            -(-chunk.images // self.batch),
            depth,
            chunk.x_rows,
            out_depth,
            chunk.rows,
            -pad_depth,
            chunk.row - pad - chunk.x_row,
            int(chunk is not self.chunks[0]),
            workspace if self.checks_accuracy else 0,
        )

    def _finish(self, kernels: Kernels, dw: View, workspace: int, taps: range) -> None:
        _, _, (_, taps_height, taps_width), _ = self.sizes
        params = FINISH_PARAMS.pack(
            workspace + self.regions["m"],
            dw.address,
            *dw.strides[:4],
            self.out_channels,
            self.channels,
            *self.padded,
            len(taps),
            taps.start,
            taps_height,
            self.pieces,
            taps_width,
            self.segments,
            workspace + self.regions["budget"] if self.checks_accuracy else 0,
            workspace if self.checks_accuracy else 0,
            self.least if self.checks_accuracy else 0.0,
        )
        grid = (-(-self.channels * self.out_channels // 256), len(taps), 1)
        kernels["winolab_wgrad_winograd_finish"](grid, 256, params, self.device.early_launches)


@cache
def _growth(tile: Tile, points: str) -> float:
    """Growth of the states' independent errors, in a tap."""
    made = transforms(tile.n, tile.r, points, SCALING).AT
    return (sum(float(e) ** 2 for row in made for e in row) / tile.n) ** 0.5


@lru_cache(maxsize=256)
def source(tile: Tile, points: str, precision: str, out_dtype: str, config: Config) -> str:
    """The translation unit of one config: the transforms, the products and the finish."""
    programs = transforms(tile.n, tile.r, points, SCALING).programs
    wide = precision == "fp32_split" and tile.alpha > ACCURATE
    constants = {
        "N": tile.n,
        "R": tile.r,
        "ALPHA": tile.alpha,
        "INPUT": TYPES[DTYPES[precision]],
        "OUTPUT": TYPES[out_dtype],
        "PARTS": 2 if precision == "fp32_split" else 1,
        **{name.upper(): value for name, value in asdict(config).items()},
    }
    return unit(
        f"Ω{tile.alpha}({tile.n},{tile.r}) {precision}, points {points}, {config}",
        constants,
        {
            "transform_filter": programs.G,
            "transform_input": programs.BT,
            "transform_output": programs.AT,
        },
        ("wgrad_winograd/kernel",),
        ("transform_output",) if wide else (),
        {
            "PRODUCTS_FILE": f"{config.products}.cuh",
            "SUMS_FILE": "sums_fp64.cuh" if wide else "sums.cuh",
        },
    )
