"""Launches of nested Winograd F(n×n, r×r) on Tensor Cores, in split FP32.

Input and filter are transformed into the workspace, once for all output channels; every state is a
matrix product there (Lavin & Gray, Algorithm 1), all in one launch; a last one transforms its
results. Pieces of a longer filter share the transformed input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Self

from winolab.gpu.codegen.structs import layout, layouts
from winolab.gpu.families import geometry, scale
from winolab.gpu.families.boxes import Box
from winolab.gpu.families.nested.cut import KC, Cut
from winolab.gpu.families.nested.source import made_of, source
from winolab.gpu.families.nested.tiles import BN, ROW_BYTES
from winolab.gpu.params import Kernels, Params, TensorMap, View
from winolab.gpu.planner.correlation import SCALING
from winolab.gpu.planner.request import BasePlan, CheckedCorrelation
from winolab.ref.arithmetic.split import Scale

FILTER_PARAMS = layout("NestedFilterParams", "nested/filter")
INPUT_PARAMS, DESCRIBERS = layouts("InputParams", "nested/input")  # before and behind the filter's
PRODUCTS_PARAMS = layout("ProductsParams", "nested/products")
OUTPUT_PARAMS = layout("OutputParams", "nested/output")
THREADS, PRODUCTS_THREADS = 128, 384  # of a block that transforms, that multiplies
FILTER_ROWS, DESCRIBED = 8, 4  # of a block that transforms a filter, that adds up what rows lose


@dataclass(frozen=True)
class NestedPlan(Cut, BasePlan):
    """One call: what is computed, by which kernels, in which parts of the batch, at what cost."""

    predicted: float = 0.0  # seconds, all launches
    given: Scale | None = None  # by the caller

    precision = "fp32_split"
    out_dtype = "float32"
    scaling = SCALING
    checks_accuracy = True  # the workspace begins with flags about the results (fallback.cuh)

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        text = f"fp32_split,accumulation=tensor_core:16:2:truncate:{3 * KC}"
        text += f",ahead={KC // 16},filters=fp64"
        return text + (f",scale={self.given}" if self.given else "")

    def __str__(self) -> str:
        p, b = self.problem, self.box(self.images)
        transformed = ", ".join(f"{self.sizes[part] >> 20} MiB {part.upper()}" for part in "vmu")
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} {self.precision}, points {self.points}, "
                f"{math.prod(self.pieces)} pieces of the filter",
                f"block      {self.config.bm} channels × {b.images} images × {b.height} × "
                f"{b.width} tiles, {KC} channels a stage",
                f"policies   {self.config}",
                f"parts      {len(self.parts)} of {self.images} images, "
                f"{self.work_tiles(self.images)} work tiles of {self.mean_steps:.4g} stages",
                f"memory     {self.config.shared_memory} B shared, {self.workspace} B workspace: "
                f"{transformed}",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def scaled(self, scale: Scale | None) -> Self:
        """The plan with the caller's scale."""
        return replace(self, given=scale) if scale else self

    def source(self) -> str:
        """The translation unit of the kernels."""
        return source(self.tiles, self.points, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        others = ("scale", "scan", "nested_rows", "nested_losses", "nested_filter")
        others += ("nested_input", "nested_output")
        products = {"winolab_nested_products": self.config.shared_memory}
        return {f"winolab_{name}": 0 for name in others} | products

    @property
    def checked_correlation(self) -> CheckedCorrelation | None:
        return self

    def scale_params(self, x: View, header: int, rows: int) -> Params:
        """Parameters of the launches that sample and scan x; ``header``, the filter's ``rows``."""
        c = self.correlation
        wide = self.config.xvec == 2 and c.channels % 4 == 0
        known, room = self._known[0], scale.room(c, self.tiles)
        return scale.parameters(c, header, rows, x, wide, known, self.config.bm, room=room)

    @property
    def _known(self) -> tuple[int, float]:
        """What the caller's scales say (scale.known)."""
        return scale.known(self.given, *made_of(self.tiles, self.points))

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        prepared = workspace + self.workspace - self.prepared
        self._correlate(kernels, a, b, prepared, out, workspace)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter."""
        for group in range(self.correlation.groups):
            params = self._filter_params(b, prepared, group)
            kernels["winolab_nested_rows"]((self.describers, 1, 1), THREADS, params)
            self._transform(kernels, params, early=False)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a transformed filter; ``workspace`` begins with the header."""
        self._correlate(kernels, a, None, prepared, out, workspace)

    def _correlate(
        self, kernels: Kernels, x: View, w: View | None, prepared: int, y: View, header: int
    ) -> None:
        """Without ``w``, with the filter that is there."""
        scale.scale(kernels, self.scale_params(x, header, prepared), False)
        early = self.device.early_launches
        for group in range(self.correlation.groups):
            filters = self._filter_params(w or View(0, (0,) * 5), prepared, group)
            for part in self.parts:
                first = w is not None and part.start == 0
                self._input(kernels, x, filters, header, group, part, first)
                if first:
                    self._transform(kernels, filters, early)
                self._products(kernels, prepared, header, group, part)
                self._output(kernels, y, prepared, header, group, part)
        scale.scan(kernels, self.device, self.scale_params(x, header, prepared))

    def _transform(self, kernels: Kernels, params: Params, early: bool) -> None:
        grid = (self.outputs // FILTER_ROWS, self.steps, 1)
        kernels["winolab_nested_filter"](grid, THREADS, params, early)
        if self.slices:
            blocks = self.outputs // DESCRIBED
            kernels["winolab_nested_losses"]((blocks, 1, 1), THREADS, params, early)

    def _filter_params(self, w: View, prepared: int, group: int) -> Params:
        c = self.correlation
        address, m, channel, _, row, column = geometry.filter_map(c, w, group, 4)
        found = prepared + self.sizes["rows"] + group * sum(self.found)
        return FILTER_PARAMS.pack(
            address,
            self._u(prepared, group),
            scale.row(c, prepared, group, self.config.bm),
            found,
            found + self.found[0],
            m,
            channel,
            row,
            column,
            *scale.dense(c, (channel, 0, row, column)),
            c.out_channels,
            c.channels,
            *c.filter[1:],
            *self.pieces,
            self.chunks,
            self.outputs,
            self.slices,
            self._known[1],
        )

    def _u(self, prepared: int, group: int) -> int:
        """The address of a group's transformed filter."""
        return prepared + self.prepared - self.sizes["u"] + group * self.transformed

    def _at(self, header: int, part: str) -> int:
        """The address of a part of the workspace."""
        ends = accumulate(self.sizes.values(), initial=0)
        return header + dict(zip(self.sizes, ends, strict=False))[part]

    def _input(
        self,
        kernels: Kernels,
        x: View,
        filters: Params,
        header: int,
        group: int,
        part: range,
        describes: bool,
    ) -> None:
        c, ((_, high), (_, wide)) = self.correlation, self.grids
        units = len(part) * high * wide * self.chunks
        params = INPUT_PARAMS.pack(
            x.address + 4 * (group * c.channels + part.start * x.strides[0]),
            self._at(header, "v"),
            header,
            x.strides[0],
            *x.strides[2:4],
            *c.input[1:],
            c.channels,
            *c.padding[1:],
            high,
            wide,
            self.chunks,
            units,
        )
        describers = self.describers if describes else 0
        params = Params.of(params, filters, DESCRIBERS.pack(describers))
        blocks = describers + -(-units * 16 // THREADS)
        early = self.device.early_launches
        kernels["winolab_nested_input"]((blocks, 1, 1), THREADS, params, early)

    def _products(
        self, kernels: Kernels, prepared: int, header: int, group: int, part: range
    ) -> None:
        b, work_tiles = self.box(len(part)), self.work_tiles(len(part))
        params = PRODUCTS_PARAMS.pack(
            self._map(header, b, len(part)),
            self._u(prepared, group),
            self._at(header, "m"),
            b.width,
            b.height,
            b.images,
            b.tiles * ROW_BYTES,
            b.blocks_width,
            b.blocks_height,
            b.blocks,
            self.blocks_m,
            work_tiles,
            *self.pieces,
            self.chunks,
            *self.short,
        )
        blocks, early = min(work_tiles, self.device.multiprocessors), self.device.early_launches
        kernels["winolab_nested_products"]((blocks, 1, 1), PRODUCTS_THREADS, params, early)

    def _map(self, header: int, b: Box, images: int) -> TensorMap:
        """Tensor map of V: halves of a tile, tiles of a row, rows, images, states."""
        (_, high), (_, wide) = self.grids
        tile = self.chunks * ROW_BYTES
        sizes = (tile // 2, wide, high, images, self.states)
        strides = tuple(accumulate((tile, wide, high, images), lambda a, b: a * b))
        shape = (ROW_BYTES // 2, b.width, b.height, b.images, 1)
        return TensorMap(self._at(header, "v"), 2, sizes, strides, shape)

    def _output(
        self, kernels: Kernels, y: View, prepared: int, header: int, group: int, part: range
    ) -> None:
        c, ((high, _), (wide, _)), b = self.correlation, self.grids, self.box(len(part))
        vectors = -(-c.out_channels // 2)
        units = len(part) * high * wide * vectors
        params = OUTPUT_PARAMS.pack(
            self._at(header, "m"),
            y.address + 4 * (group * c.out_channels + part.start * y.strides[0]),
            header,
            scale.row(c, prepared, group, self.config.bm),
            y.strides[0],
            y.strides[2],
            b.blocks * BN * self.outputs,
            y.strides[3],
            *c.output[1:],
            c.out_channels,
            self.outputs,
            high,
            wide,
            vectors,
            units,
            b.width,
            b.height,
            b.images,
            b.blocks_width,
            b.blocks_height,
        )
        blocks, early = -(-units // THREADS), self.device.early_launches
        kernels["winolab_nested_output"]((blocks, 1, 1), THREADS, params, early)
