"""Launches of nested Winograd F(n×n, r×r) on Tensor Cores.

Input and filter are transformed into the workspace, once for all output channels; every state is a
matrix product there (Lavin & Gray, Algorithm 1), all in one launch; a last one transforms its
results. Pieces of a longer filter share the transformed input.
"""

from __future__ import annotations

from itertools import accumulate

from winolab.gpu.codegen.structs import layout, layouts
from winolab.gpu.families import correlation_params, scale
from winolab.gpu.families.boxes import Box
from winolab.gpu.families.nested.config import BN, KC, ROW_BYTES, STAGED_LANES, STAGED_THREADS
from winolab.gpu.families.nested.source import made_of, staged
from winolab.gpu.families.nested.tiles import in_registers
from winolab.gpu.families.nested.tiling import Tiling
from winolab.gpu.params import Kernels, Params, TensorMap, View

FILTER_PARAMS = layout("NestedFilterParams", "nested/filter_params")
# Before and behind the filter's.
INPUT_PARAMS, DESCRIBERS = layouts("InputParams", "nested/input_params")
PRODUCTS_PARAMS = layout("ProductsParams", "nested/products")
OUTPUT_PARAMS = layout("OutputParams", "nested/output_params")
THREADS, PRODUCTS_THREADS = 128, 384  # of a block that transforms, that multiplies
DESCRIBED = 4  # rows of a block that adds up what they lose


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute all groups on the current stream."""
    prepared = workspace + call.workspace - call.prepared_size
    correlate(call, kernels, a, b, prepared, out, workspace)


def prepare(call: Tiling, kernels: Kernels, b: View, prepared: int) -> None:
    """Transform the filter."""
    for group in range(call.correlation.groups):
        params = _filter_params(call, b, prepared, group)
        if call.split:
            kernels["winolab_nested_rows"]((call.describers, 1, 1), THREADS, params)
        _transform(call, kernels, params, early=False)


def correlate(
    call: Tiling, kernels: Kernels, x: View, w: View | None, prepared: int, y: View, header: int
) -> None:
    """Compute all groups; without ``w``, with the transformed filter that is there."""
    if call.split:
        scale.scale(kernels, scale_params(call, x, header, prepared), False)
    early = call.device.early_launches
    for group in range(call.correlation.groups):
        filters = _filter_params(call, w or View(0, (0,) * 5), prepared, group)
        for batch in call.batches:
            first = w is not None and batch.start == 0
            _input(call, kernels, x, filters, header, group, batch, first and call.split)
            if first:
                _transform(call, kernels, filters, early)
            _products(call, kernels, prepared, header, group, batch)
            _output(call, kernels, y, prepared, header, group, batch)
    if call.split:
        scale.scan(kernels, call.device, scale_params(call, x, header, prepared))


def scale_params(call: Tiling, x: View, header: int, rows: int) -> Params:
    """Parameters of the launches that sample and scan x; ``header``, the filter's ``rows``."""
    c = call.correlation
    wide = call.config.xvec == 2 and c.channels % 4 == 0
    known, room = _known(call)[0], scale.room(c, call.pair)
    return scale.parameters(
        c, header, rows, x, wide, known, call.config.bm, room=room, by_image=True
    )


def _known(call: Tiling) -> tuple[int, float]:
    """What the caller's scales say (scale.known)."""
    return scale.known(call.given, *made_of(call.pair, call.points))


def _kernel(call: Tiling, part: str) -> str:
    """The name of the kernel that transforms a part."""
    return f"winolab_nested_{staged(call.pair)}{part}"


def _block(call: Tiling) -> tuple[int, int]:
    """Rows of the filter, or tiles' chunks, of a block that transforms; its threads."""
    if in_registers(call.pair):  # a thread has two channels
        return 2 * THREADS // KC[call.precision], THREADS
    return 1, STAGED_THREADS


def _transform(call: Tiling, kernels: Kernels, params: Params, early: bool) -> None:
    rows, threads = _block(call)
    grid = (call.outputs // rows, call.steps, 1)
    kernels[_kernel(call, "filter")](grid, threads, params, early)
    if call.slices:
        blocks = call.outputs // DESCRIBED
        kernels["winolab_nested_losses"]((blocks, 1, 1), THREADS, params, early)


def _filter_params(call: Tiling, w: View, prepared: int, group: int) -> Params:
    c = call.correlation
    address, m, channel, depth, row, column = correlation_params.filter_map(
        c, w, group, call.itemsize
    )
    found = prepared + call.sizes["rows"] + group * sum(call.found)
    return FILTER_PARAMS.pack(
        address,
        _u(call, prepared, group),
        _row(call, prepared, group),
        found,
        found + call.found[0],
        m,
        channel,
        depth,
        row,
        column,
        *scale.dense(c, (channel, depth, row, column)),
        c.out_channels,
        c.channels,
        *c.filter,
        *call.pieces,
        call.chunks,
        call.outputs,
        call.slices,
        _known(call)[1] if call.split else 0.0,
    )


def _row(call: Tiling, prepared: int, group: int) -> int:
    """The address of a group's first row."""
    return scale.row(call.correlation, prepared, group, call.config.bm) if call.split else 0


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
    units = len(batch) * c.input[0] * high * wide * call.chunks
    params = INPUT_PARAMS.pack(
        x.address + call.itemsize * (group * c.channels + batch.start * x.strides[0]),
        _at(call, header, "v"),
        header,
        *x.strides[:4],
        *c.input,
        c.channels,
        *c.padding[1:],
        high,
        wide,
        call.chunks,
        call.pitch,
        units,
        batch.start,
        c.batch,
    )
    describers = call.describers if describes else 0
    params = Params.of(params, filters, DESCRIBERS.pack(describers))
    rows, threads = _block(call)
    blocks = describers + -(-units // rows)
    early = call.device.early_launches
    kernels[_kernel(call, "input")]((blocks, 1, 1), threads, params, early)


def _products(
    call: Tiling, kernels: Kernels, prepared: int, header: int, group: int, batch: range
) -> None:
    b, work_tiles = call.box(len(batch)), call.work_tiles(len(batch))
    taps, frame = call.correlation.filter[0], call.frame if call.flat else 0
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
        taps,
        frame,
        -call.correlation.padding[0] * frame,
        *call.pieces,
        call.chunks,
        *call.short,
    )
    blocks, early = min(work_tiles, call.device.multiprocessors), call.device.early_launches
    kernels["winolab_nested_products"]((blocks, 1, 1), PRODUCTS_THREADS, params, early)


def _map(call: Tiling, header: int, b: Box, images: int) -> TensorMap:
    """Tensor map of V: 16-bit numbers of a tile, tiles of a row, rows, images, states; or, flat, of
    a line, lines."""
    (_, high), (_, wide) = call.grids
    frames, tile = call.correlation.input[0], 4 * call.pitch
    tiles = wide, high, images * frames
    if call.flat:
        lines, long = call.lines(images, frames)
        tiles = long, 1, lines
    sizes = (tile // 2, *tiles, call.states)
    strides = tuple(accumulate((tile, *tiles), lambda a, b: a * b))
    shape = (ROW_BYTES // 2, b.width, b.height, b.images, 1)
    return TensorMap(_at(call, header, "v"), 2, sizes, strides, shape)


def _output(
    call: Tiling, kernels: Kernels, y: View, prepared: int, header: int, group: int, batch: range
) -> None:
    c, ((high, _), (wide, _)), b = call.correlation, call.grids, call.box(len(batch))
    vectors = -(-c.out_channels // 2)
    units = len(batch) * c.output[0] * high * wide * vectors
    size = 4 if call.out_dtype == "float32" else call.itemsize
    params = OUTPUT_PARAMS.pack(
        _at(call, header, "m"),
        y.address + size * (group * c.out_channels + batch.start * y.strides[0]),
        header,
        _row(call, prepared, group),
        *y.strides[:3],
        b.blocks * BN * call.outputs,
        y.strides[3],
        *c.output,
        c.out_channels,
        call.outputs,
        high,
        wide,
        vectors,
        units,
        call.lines(len(batch), c.output[0])[1] if call.flat else 0,
        b.width,
        b.height,
        b.images,
        b.blocks_width,
        b.blocks_height,
        batch.start,
    )
    blocks, threads = -(-units // THREADS), THREADS
    if not in_registers(call.pair):
        blocks, threads = units // vectors * -(-vectors // STAGED_LANES), STAGED_THREADS
    early = call.device.early_launches
    kernels[_kernel(call, "output")]((blocks, 1, 1), threads, params, early)
