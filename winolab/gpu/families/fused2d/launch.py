"""Fused F(2×2, 3×3) in FP32 on FFMA units: one call's grid, parameters and launches.

One launch transforms the filter of a group into the workspace, unless it is transformed in the
block; the next one does everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

from winolab.algorithm import Algorithm, Problem, tiled
from winolab.device import Device
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import geometry
from winolab.gpu.families.fused2d.config import KC, Config
from winolab.gpu.families.fused2d.layouts import STATES, TILES
from winolab.gpu.families.fused2d.source import TILE, source
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import BasePlan

FILTER_PARAMS = layout("Fused2dFilterParams", "fused2d/filter")
PARAMS = layout("Fused2dParams", "fused2d/block")
FILTER_BLOCK, FILTER_THREADS = 32, 256  # output and input channels of a block; its threads


@dataclass(frozen=True)
class Fused2dPlan(BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    direction: str
    problem: Problem
    correlation: Correlation
    points: str
    config: Config
    device: Device
    predicted: float = 0.0  # seconds, filter transform included

    kernel = "F(2×2,3×3)"
    precision = simulated = "fp32"
    out_dtype = "float32"
    tiles = (TILE, TILE)

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return tiled(self.tiles, self.points)

    @property
    def chunks(self) -> int:
        """Stages of KC channels."""
        return -(-self.correlation.channels // KC)

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // self.config.bm)

    @property
    def image(self) -> tuple[int, int]:
        """Rows and columns of an image's tiles."""
        _, height, width = self.correlation.output
        return -(-height // TILE.n), -(-width // TILE.n)

    @property
    def boxes(self) -> tuple[int, int, int]:
        """Boxes of tiles along images, rows and columns; 0 where tiles follow one another."""
        v, (rows, columns) = self.config, self.image
        if not v.images:
            return 0, 0, 0
        return -(-self.correlation.batch // v.images), -(-rows // v.rows), -(-columns // v.columns)

    @property
    def tile_blocks(self) -> int:
        """Blocks of tiles."""
        images, rows, columns = self.boxes
        if images:
            return images * rows * columns
        rows, columns = self.image
        return -(-self.correlation.batch * rows * columns // TILES)

    @property
    def work_tiles(self) -> int:
        """Work tiles of a group."""
        return self.blocks_m * self.tile_blocks

    @property
    def grid(self) -> int:
        """Blocks: one a multiprocessor, which its shared memory fills."""
        return min(self.work_tiles, self.device.multiprocessors)

    @property
    def transformed(self) -> int:
        """Bytes of a group's transformed filter."""
        return 4 * self.blocks_m * self.chunks * STATES * KC * self.config.bm

    @property
    def workspace(self) -> int:
        """Bytes of all groups' transformed filters; none where blocks transform them."""
        return 0 if self.config.fused else self.transformed * self.correlation.groups

    @property
    def prepared(self) -> int:
        """Bytes of the transformed filter, all groups: the whole workspace."""
        return self.workspace

    def __str__(self) -> str:
        p, v = self.problem, self.config
        rows, columns = self.image
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} fp32 on FFMA units, fused, points {self.points}",
                f"block      {v.bm} channels × {TILES} of {rows} × {columns} tiles an image, "
                f"{KC} channels a stage",
                f"policies   {v}",
                f"grid       {self.grid} blocks of {v.threads} threads, "
                f"{self.work_tiles} work tiles",
                f"memory     {v.shared_memory} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of ``winolab_fused2d_filter`` and ``winolab_fused2d``."""
        return source(self.points, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {"winolab_fused2d_filter": 0, "winolab_fused2d": self.config.shared_memory}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream.

        ``a`` and ``out`` may have a fifth stride, of channels, which is 1 without it.
        """
        if not self.config.fused:
            self.prepare(kernels, b, workspace, index)
        self._run(kernels, a, b, workspace, out, self.device.early_launches)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter."""
        for group in range(self.correlation.groups):
            params = self.filter_params(group, b, prepared)
            kernels["winolab_fused2d_filter"](self.filter_grid, FILTER_THREADS, params)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a transformed filter."""
        self._run(kernels, a, None, prepared, out, early=False)

    def _run(
        self, kernels: Kernels, x: View, w: View | None, prepared: int, y: View, early: bool
    ) -> None:
        """``early``: the launch before transforms the filter."""
        for group in range(self.correlation.groups):
            params = self.params(group, x, w, prepared, y)
            begin = early and group == 0 and not self.config.fused
            kernels["winolab_fused2d"]((self.grid, 1, 1), self.config.threads, params, begin)

    @property
    def filter_grid(self) -> tuple[int, int, int]:
        """Blocks that transform a group's filter."""
        outputs, channels = self.blocks_m * self.config.bm, self.chunks * KC
        return outputs // FILTER_BLOCK, -(-channels // FILTER_BLOCK), 1

    def filter_params(self, group: int, w: View, prepared: int) -> Params:
        """Parameters of the transform of a group's filter."""
        c = self.correlation
        address, m, channel, _, row, column = geometry.filter_map(c, w, group, 4)
        return FILTER_PARAMS.pack(
            address,
            prepared + group * self.transformed,
            m,
            channel,
            row,
            column,
            c.out_channels,
            c.channels,
            self.chunks,
            self.blocks_m,
        )

    def params(self, group: int, x: View, w: View | None, prepared: int, y: View) -> Params:
        """Parameters of a group's convolution: of the filter ``w`` where blocks transform it, else
        of the transformed filters at address ``prepared``."""
        c, v = self.correlation, self.config
        x_channel, y_channel = ((*view.strides, 1)[4] for view in (x, y))
        u, taps = prepared + group * self.transformed, (0, 0, 0, 0)
        if v.fused and w:
            u, m, channel, _, row, column = geometry.filter_map(c, w, group, 4)
            taps = (m, channel, row, column)
        _, rows, columns = self.boxes
        return PARAMS.pack(
            x.address + 4 * group * c.channels * x_channel,
            u,
            y.address + 4 * group * c.out_channels * y_channel,
            *(x.strides[0], *x.strides[2:4], x_channel),
            *(y.strides[0], *y.strides[2:4], y_channel),
            *taps,
            c.batch,
            *c.input[1:],
            *c.output[1:],
            *c.padding[1:],
            c.channels,
            c.out_channels,
            *self.image,
            rows,
            columns,
            self.chunks,
            self.blocks_m,
            self.tile_blocks,
            v.group or self.blocks_m,
            self.work_tiles,
        )
