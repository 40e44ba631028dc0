"""Launches of nested Winograd F(n×n, r×r) on Tensor Cores, in split FP32.

Input and filter are transformed into the workspace, once for all output channels; every state is a
matrix product there (Lavin & Gray, Algorithm 1), all in one launch; a last one transforms its
results. Pieces of a longer filter share the transformed input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from winolab.device import Device
from winolab.gpu import geometry, scale
from winolab.gpu.correlation import Correlation
from winolab.gpu.launch import Kernels, Params, View
from winolab.gpu.nested_params import (
    DESCRIBERS,
    FILTER_PARAMS,
    INPUT_PARAMS,
    OUTPUT_PARAMS,
    PRODUCTS_PARAMS,
)
from winolab.gpu.nested_source import made_of, name, source
from winolab.gpu.nested_tiles import BM, ROW_BYTES, Box, Pair, Variant, box, grid, pieces
from winolab.gpu.tensor_map import TensorMap
from winolab.nouns import Algorithm, Problem
from winolab.ref.split import Scale

KC = 32  # channels of a stage
ALIGNED = 1024  # bytes: where the parts of a workspace begin
THREADS, PRODUCTS_THREADS = 128, 384  # of a block that transforms, that multiplies
FILTER_ROWS, DESCRIBED = 8, 4  # of a block that transforms a filter, that adds up what rows lose
# Neighbouring rows that a block looks at; elements of a slice of them, and the most slices.
ASIDE, SLICE, MOST_SLICES = 32, 256, 32
LOSS = 12  # bytes of scale.cuh's struct


@dataclass(frozen=True)
class NestedPlan:
    """One call: what is computed, by which kernels, in which parts of the batch, at what cost."""

    direction: str
    problem: Problem
    correlation: Correlation
    tiles: Pair  # along the height, along the width
    points: str
    variant: Variant
    device: Device
    images: int  # of a part of the batch
    predicted: float = 0.0  # seconds, all launches
    given: Scale | None = None  # by the caller

    precision = "fp32_split"
    watched = True  # the workspace begins with flags about the results (kernels/guard.cuh)

    @property
    def kernel(self) -> str:
        """Lavin & Gray's name of the algorithm."""
        return name(self.tiles)

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return Algorithm("winograd", self.tiles, self.points)

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        text = f"fp32_split,accumulation=tensor_core:16:2:truncate:{3 * KC}"
        text += f",ahead={KC // 16},filters=fp64"
        return text + (f",scale={self.given}" if self.given else "")

    @property
    def states(self) -> int:
        """Of both dimensions."""
        return math.prod(t.alpha for t in self.tiles)

    @property
    def pieces(self) -> tuple[int, int]:
        """Of the filter, along both dimensions."""
        _, height, width = self.correlation.filter
        return pieces(self.tiles[0], height), pieces(self.tiles[1], width)

    @property
    def grids(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Along both dimensions, tiles of the outputs and of the input."""
        (_, height, width), (_, high, wide) = self.correlation.filter, self.correlation.output
        return grid(self.tiles[0], height, high), grid(self.tiles[1], width, wide)

    @property
    def chunks(self) -> int:
        """Stages of KC channels."""
        return -(-self.correlation.channels // KC)

    @property
    def steps(self) -> int:
        """Stages of a sum."""
        return math.prod(self.pieces) * self.chunks

    @property
    def blocks_n(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // self.variant.bn)

    @property
    def outputs(self) -> int:
        """Output channels of U and M, in whole blocks."""
        return self.blocks_n * self.variant.bn

    def box(self, images: int) -> Box:
        """Of the blocks of so many images."""
        (high, _), (wide, _) = self.grids
        return box(images, high, wide)

    def items(self, images: int) -> int:
        """Blocks' worth of products of so many images."""
        return self.states * self.box(images).blocks * self.blocks_n

    @property
    def rows_stage(self) -> int:
        """Rows of U and V that a stage brings."""
        return BM + self.variant.bn

    def moved(self, images: int) -> tuple[int, int]:
        """Bytes of V and M of so many images."""
        (high, more_high), (wide, more_wide) = self.grids
        tiles = self.states * images
        v = tiles * more_high * more_wide * self.chunks * ROW_BYTES
        return v, tiles * high * wide * self.outputs * 4

    @property
    def parts(self) -> tuple[range, ...]:
        """Images of each part of the batch."""
        batch = range(self.correlation.batch)
        return tuple(batch[i : i + self.images] for i in batch[:: self.images])

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes of the parts of the workspace, in their order."""
        c = self.correlation
        most = max((self.box(len(part)).blocks for part in self.parts), default=0)
        sizes = {
            "header": scale.HEADER,
            "v": self.moved(self.images)[0],
            "m": self.states * most * BM * self.outputs * 4,
            "rows": scale.size(c, self.variant.bn),
            "found": c.groups * sum(self._found),
            "u": c.groups * self.transformed,
        }
        return {name: -(-size // ALIGNED) * ALIGNED for name, size in sizes.items()}

    @property
    def _slices(self) -> int:
        """Slices of the filter's rows, where these are nearer in memory than their elements."""
        c = self.correlation
        slices = -(-c.channels * math.prod(c.filter) // SLICE)
        return min(MOST_SLICES, slices) if c.rotated else 0

    @property
    def _describers(self) -> int:
        """Blocks that describe the filter's rows, or look at neighbouring ones."""
        return -(-self.outputs // ASIDE) * self._slices or self.outputs

    @property
    def _found(self) -> tuple[int, int]:
        """Bytes of what is found about a group's neighbouring rows: largest elements, losses."""
        slices, losses = self._slices, LOSS * self.steps if self._slices else 0
        return 4 * slices * self.outputs, losses * self.outputs

    @property
    def transformed(self) -> int:
        """Bytes of the transformed filter of a group."""
        return self.states * self.steps * self.outputs * ROW_BYTES

    @property
    def prepared(self) -> int:
        """Bytes of what depends on the filter alone, of all groups."""
        return sum(self.sizes[name] for name in ("rows", "found", "u"))

    @property
    def workspace(self) -> int:
        """Bytes."""
        return sum(self.sizes.values())

    def __str__(self) -> str:
        p, b = self.problem, self.box(self.images)
        transformed = ", ".join(f"{self.sizes[part] >> 20} MiB {part.upper()}" for part in "vmu")
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} {self.precision}, points {self.points}, "
                f"{math.prod(self.pieces)} pieces of the filter",
                f"block      {self.variant.bn} channels × {b.images} images × {b.height} × "
                f"{b.width} tiles, {KC} channels a stage",
                f"policies   {self.variant}",
                f"parts      {len(self.parts)} of {self.images} images, "
                f"{self.items(self.images)} items of {self.steps} stages",
                f"memory     {self.variant.shared_memory} B shared, {self.workspace} B workspace: "
                f"{transformed}",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of the kernels."""
        return source(self.tiles, self.points, self.variant)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        others = ("scale", "scan", "nested_rows", "nested_losses", "nested_filter")
        others += ("nested_input", "nested_output")
        products = {"winolab_nested_products": self.variant.shared_memory}
        return {f"winolab_{name}": 0 for name in others} | products

    def scale_params(self, x: View, header: int, rows: int) -> Params:
        """Of the launches that sample and scan x: ``header`` and the filter's ``rows``."""
        c = self.correlation
        wide = self.variant.xvec == 2 and c.channels % 4 == 0
        return scale.parameters(c, header, rows, x, wide, self._known[0], self.variant.bn)

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
            kernels["winolab_nested_rows"]((self._describers, 1, 1), THREADS, params)
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
        if self._slices:
            blocks = self.outputs // DESCRIBED
            kernels["winolab_nested_losses"]((blocks, 1, 1), THREADS, params, early)

    def _filter_params(self, w: View, prepared: int, group: int) -> Params:
        c = self.correlation
        address, m, channel, _, row, column = geometry.filter_map(c, w, group, 4)
        found = prepared + self.sizes["rows"] + group * sum(self._found)
        return FILTER_PARAMS.pack(
            address,
            self._u(prepared, group),
            scale.row(c, prepared, group, self.variant.bn),
            found,
            found + self._found[0],
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
            self._slices,
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
        describers = self._describers if describes else 0
        params = Params.of(params, filters, DESCRIBERS.pack(describers))
        blocks = describers + -(-units * 16 // THREADS)
        early = self.device.early_launches
        kernels["winolab_nested_input"]((blocks, 1, 1), THREADS, params, early)

    def _products(
        self, kernels: Kernels, prepared: int, header: int, group: int, part: range
    ) -> None:
        b, items = self.box(len(part)), self.items(len(part))
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
            self.blocks_n,
            items,
            *self.pieces,
            self.chunks,
        )
        blocks, early = min(items, self.device.multiprocessors), self.device.early_launches
        kernels["winolab_nested_products"]((blocks, 1, 1), PRODUCTS_THREADS, params, early)

    def _map(self, header: int, b: Box, images: int) -> TensorMap:
        """Of V: halves of a tile, tiles of a row, rows, images, states."""
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
            scale.row(c, prepared, group, self.variant.bn),
            y.strides[0],
            y.strides[2],
            b.blocks * BM * self.outputs,
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
