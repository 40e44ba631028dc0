"""Launches of nested Winograd F(n×n, r×r) on Tensor Cores, in split FP32.

Input and filter are transformed into the workspace, once for all output channels; every state is a
matrix product there (Lavin & Gray, Algorithm 1), all in one launch; a last one transforms its
results. Pieces of a longer filter share the transformed input.
"""

from __future__ import annotations

from itertools import accumulate

from winolab.gpu.codegen.structs import layout, layouts
from winolab.gpu.families import correlation_params, scale
from winolab.gpu.families.boxes import Box
from winolab.gpu.families.nested.config import BN, ROW_BYTES
from winolab.gpu.families.nested.source import made_of
from winolab.gpu.families.nested.tiling import Tiling
from winolab.gpu.params import Kernels, Params, TensorMap, View

FILTER_PARAMS = layout("NestedFilterParams", "nested/filter")
INPUT_PARAMS, DESCRIBERS = layouts("InputParams", "nested/input")  # before and behind the filter's
PRODUCTS_PARAMS = layout("ProductsParams", "nested/products")
OUTPUT_PARAMS = layout("OutputParams", "nested/output")
THREADS, PRODUCTS_THREADS = 128, 384  # of a block that transforms, that multiplies
FILTER_ROWS, DESCRIBED = 8, 4  # of a block that transforms a filter, that adds up what rows lose


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute all groups on the current stream."""
    prepared = workspace + call.workspace - call.prepared_size
    correlate(call, kernels, a, b, prepared, out, workspace)


def prepare(call: Tiling, kernels: Kernels, b: View, prepared: int) -> None:
    """Transform the filter."""
    for group in range(call.correlation.groups):
        params = _filter_params(call, b, prepared, group)
        kernels["winolab_nested_rows"]((call.describers, 1, 1), THREADS, params)
        _transform(call, kernels, params, early=False)


def correlate(
    call: Tiling, kernels: Kernels, x: View, w: View | None, prepared: int, y: View, header: int
) -> None:
    """Compute all groups; without ``w``, with the transformed filter that is there."""
    scale.scale(kernels, scale_params(call, x, header, prepared), False)
    early = call.device.early_launches
    for group in range(call.correlation.groups):
        filters = _filter_params(call, w or View(0, (0,) * 5), prepared, group)
        for batch in call.batches:
            first = w is not None and batch.start == 0
            _input(call, kernels, x, filters, header, group, batch, first)
            if first:
                _transform(call, kernels, filters, early)
            _products(call, kernels, prepared, header, group, batch)
            _output(call, kernels, y, prepared, header, group, batch)
    scale.scan(kernels, call.device, scale_params(call, x, header, prepared))


def scale_params(call: Tiling, x: View, header: int, rows: int) -> Params:
    """Parameters of the launches that sample and scan x; ``header``, the filter's ``rows``."""
    c = call.correlation
    wide = call.config.xvec == 2 and c.channels % 4 == 0
    known, room = _known(call)[0], scale.room(c, call.tiles)
    return scale.parameters(c, header, rows, x, wide, known, call.config.bm, room=room)


def _known(call: Tiling) -> tuple[int, float]:
    """What the caller's scales say (scale.known)."""
    return scale.known(call.given, *made_of(call.tiles, call.points))


def _transform(call: Tiling, kernels: Kernels, params: Params, early: bool) -> None:
    grid = (call.outputs // FILTER_ROWS, call.steps, 1)
    kernels["winolab_nested_filter"](grid, THREADS, params, early)
    if call.slices:
        blocks = call.outputs // DESCRIBED
        kernels["winolab_nested_losses"]((blocks, 1, 1), THREADS, params, early)


def _filter_params(call: Tiling, w: View, prepared: int, group: int) -> Params:
    c = call.correlation
    address, m, channel, _, row, column = correlation_params.filter_map(c, w, group, 4)
    found = prepared + call.sizes["rows"] + group * sum(call.found)
    return FILTER_PARAMS.pack(
        address,
        _u(call, prepared, group),
        scale.row(c, prepared, group, call.config.bm),
        found,
        found + call.found[0],
        m,
        channel,
        row,
        column,
        *scale.dense(c, (channel, 0, row, column)),
        c.out_channels,
        c.channels,
        *c.filter[1:],
        *call.pieces,
        call.chunks,
        call.outputs,
        call.slices,
        _known(call)[1],
    )


def _u(call: Tiling, prepared: int, group: int) -> int:
    """The address of a group's transformed filter."""
    return prepared + call.prepared_size - call.sizes["u"] + group * call.transformed


def _at(call: Tiling, header: int, part: str) -> int:
    """The address of a part of the workspace."""
    ends = accumulate(call.sizes.values(), initial=0)
    return header + dict(zip(call.sizes, ends, strict=False))[part]


def _input(
    call: Tiling,
    kernels: Kernels,
    x: View,
    filters: Params,
    header: int,
    group: int,
    batch: range,
    describes: bool,
) -> None:
    c, ((_, high), (_, wide)) = call.correlation, call.grids
    units = len(batch) * high * wide * call.chunks
    params = INPUT_PARAMS.pack(
        x.address + 4 * (group * c.channels + batch.start * x.strides[0]),
        _at(call, header, "v"),
        header,
        x.strides[0],
        *x.strides[2:4],
        *c.input[1:],
        c.channels,
        *c.padding[1:],
        high,
        wide,
        call.chunks,
        units,
    )
    describers = call.describers if describes else 0
    params = Params.of(params, filters, DESCRIBERS.pack(describers))
    blocks = describers + -(-units * 16 // THREADS)
    early = call.device.early_launches
    kernels["winolab_nested_input"]((blocks, 1, 1), THREADS, params, early)


def _products(
    call: Tiling, kernels: Kernels, prepared: int, header: int, group: int, batch: range
) -> None:
    b, work_tiles = call.box(len(batch)), call.work_tiles(len(batch))
    params = PRODUCTS_PARAMS.pack(
        _map(call, header, b, len(batch)),
        _u(call, prepared, group),
        _at(call, header, "m"),
        b.width,
        b.height,
        b.images,
        b.tiles * ROW_BYTES,
        b.blocks_width,
        b.blocks_height,
        b.blocks,
        call.blocks_m,
        work_tiles,
        *call.pieces,
        call.chunks,
        *call.short,
    )
    blocks, early = min(work_tiles, call.device.multiprocessors), call.device.early_launches
    kernels["winolab_nested_products"]((blocks, 1, 1), PRODUCTS_THREADS, params, early)


def _map(call: Tiling, header: int, b: Box, images: int) -> TensorMap:
    """Tensor map of V: halves of a tile, tiles of a row, rows, images, states."""
    (_, high), (_, wide) = call.grids
    tile = call.chunks * ROW_BYTES
    sizes = (tile // 2, wide, high, images, call.states)
    strides = tuple(accumulate((tile, wide, high, images), lambda a, b: a * b))
    shape = (ROW_BYTES // 2, b.width, b.height, b.images, 1)
    return TensorMap(_at(call, header, "v"), 2, sizes, strides, shape)


def _output(
    call: Tiling, kernels: Kernels, y: View, prepared: int, header: int, group: int, batch: range
) -> None:
    c, ((high, _), (wide, _)), b = call.correlation, call.grids, call.box(len(batch))
    vectors = -(-c.out_channels // 2)
    units = len(batch) * high * wide * vectors
    params = OUTPUT_PARAMS.pack(
        _at(call, header, "m"),
        y.address + 4 * (group * c.out_channels + batch.start * y.strides[0]),
        header,
        scale.row(c, prepared, group, call.config.bm),
        y.strides[0],
        y.strides[2],
        b.blocks * BN * call.outputs,
        y.strides[3],
        *c.output[1:],
        c.out_channels,
        call.outputs,
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
    blocks, early = -(-units // THREADS), call.device.early_launches
    kernels["winolab_nested_output"]((blocks, 1, 1), THREADS, params, early)
