"""Launches of direct products: on wgmma, of 16 bits and of split data, and on FFMA units."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import correlation_params, scale
from winolab.gpu.families.axes import MOST_STEP
from winolab.gpu.families.direct.config import FFMA_THREADS, KC, PAIR, ROW_BYTES, SPLIT_CHANNELS
from winolab.gpu.families.direct.tiling import SIZE, TILES, FfmaTiling, SplitTiling, Tiling
from winolab.gpu.families.epilogue import finished
from winolab.gpu.params import Kernels, Params, TensorMap, View
from winolab.gpu.planner.request import (
    ITEMSIZE,
)

FILTER_THREADS = 128  # of a block that splits a filter
PARAMS = layout("DirectParams", "direct/walk")
SPLIT_PARAMS = layout("DirectSplitParams", "direct/split")  # before walk.cuh's
FILTER_PARAMS = layout("DirectFilterParams", "direct/split_filter")
FFMA_PARAMS = layout("DirectFfmaParams", "direct/ffma")

C = TypeVar("C", bound=Tiling)


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View) -> None:
    """Compute all groups on the current stream."""
    call = fitting(call, a, out)
    for group in range(call.correlation.groups):
        params = main_params(call, group, a, filter_map(call, group, b), out)
        params = finished(params, out, group * call.correlation.out_channels, call.out_dtype)
        kernels["winolab_direct"]((call.grid, 1, 1), call.threads, params)


def fitting(call: C, x: View, y: View) -> C:
    """The call, or, where its positions are one row and those of these arrays are not, one of
    rows."""
    c = call.correlation
    gaps = not (_dense(x, c.batch, c.input) and _dense(y, c.batch, c.output))
    return replace(call, flat=False) if call.flat and gaps else call


def _dense(view: View, batch: int, sizes: tuple[int, ...]) -> bool:
    """Whether pixels lie at equal distances, from row to row and image to image too."""
    step, counts = view.strides[3], (batch, *sizes)
    return all(
        counts[i] == 1 or view.strides[i] == step * math.prod(counts[i + 1 :]) for i in range(3)
    )


def main_params(call: Tiling, group: int, x: View, filters: TensorMap, y: View) -> Params:
    """Parameters of a group's convolution."""
    c, b = call.walked, call.box
    pitch = b.width + call.more
    params = PARAMS.pack(
        _inputs(call, group, x),
        filters,
        y.address + ITEMSIZE[call.out_dtype] * group * c.out_channels,
        *y.strides[:4],
        b.width,
        b.height,
        b.images,
        pitch * b.height * b.images * ROW_BYTES,
        b.blocks_width,
        b.blocks_height,
        b.blocks_images,
        call.blocks_m,
        call.work_tiles,
        c.batch,
        *c.output,
        c.out_channels,
        *c.padding,
        *c.filter,
        call.chunks,
        pitch,
    )
    return Params.of(params, *(a.params() for a in call.axes))


def _inputs(call: Tiling, group: int, x: View) -> TensorMap:
    """The tensor map of a group's channels of x: those of the pixels that outputs meet."""
    c, b, (_, *along) = call.walked, call.box, call.axes
    steps = [1 if c.rotated or a.stride > MOST_STEP else a.stride for a in along]
    sizes = (c.channels, *c.input[::-1], c.batch)
    shape = (call.step_channels, b.width + call.more, b.height, 1, b.images)
    address = x.address + call.itemsize * group * c.channels
    return TensorMap.of(
        address, call.itemsize, sizes, x.strides[::-1], shape, steps=(1, *steps[::-1], 1, 1)
    )


def filter_map(call: Tiling, group: int, w: View) -> TensorMap:
    """The tensor map of a group's filter: neighbouring channels, taps, the other channels."""
    c = call.correlation
    inner, outer = c.channels, c.out_channels
    if c.rotated:
        inner, outer = outer, inner
    sizes = (inner, *c.filter[::-1], outer)
    shape = (KC, 1, 1, 1, KC if c.rotated else call.config.bm)
    address = w.address + SIZE * group * outer * w.strides[0]
    return TensorMap.of(address, SIZE, sizes, w.strides[3::-1], shape)


def launch_split(
    call: SplitTiling, kernels: Kernels, a: View, b: View, out: View, workspace: int
) -> None:
    """Compute all groups on the current stream."""
    correlate_split(call, kernels, a, b, workspace + call.header, out, workspace)


def prepare_split(call: SplitTiling, kernels: Kernels, b: View, prepared: int) -> None:
    """Split the filter."""
    for group in range(call.correlation.groups):
        _split(call, kernels, group, b, prepared, early=False)


def correlate_split(
    call: SplitTiling,
    kernels: Kernels,
    x: View,
    w: View | None,
    prepared: int,
    y: View,
    header: int,
) -> None:
    """Compute all groups; without ``w``, with the parts that are there."""
    plan, early = fitting(call, x, y), call.device.early_launches
    params = scale_params(call, x, header, prepared)
    scale.scale(kernels, params, False)
    for group in range(call.correlation.groups):
        if w:
            _split(call, kernels, group, w, prepared, early)
    for group in range(call.correlation.groups):
        rows = scale.row(call.correlation, prepared, group)
        one_row = plan.window[0] if plan.flat else 0
        own = SPLIT_PARAMS.pack(header, rows, *plan.window, call.correlation.batch, one_row)
        filters = _split_filter_map(call, _parts(call, prepared, group))
        both = Params.of(own, main_params(plan, group, x, filters, y))
        first = early and group == 0
        kernels["winolab_direct_split"]((plan.grid, 1, 1), plan.threads, both, first)
    scale.scan(kernels, call.device, params)


def scale_params(call: SplitTiling, x: View, header: int, rows: int) -> Params:
    """Parameters of the launches that sample and scan x; ``header``, the filter's ``rows``."""
    c = call.correlation
    room = scale.room(c, TILES)
    return scale.parameters(c, header, rows, x, True, _known(call)[0], room=room, by_image=True)


def _known(call: SplitTiling) -> tuple[int, float]:
    """What the caller's scale says (scale.known)."""
    return scale.known(call.given)


def _split(
    call: SplitTiling, kernels: Kernels, group: int, w: View, prepared: int, early: bool
) -> None:
    c = call.correlation
    address, m, channel, *taps = correlation_params.filter_map(c, w, group, 4)
    params = FILTER_PARAMS.pack(
        address,
        _parts(call, prepared, group),
        scale.row(c, prepared, group),
        m,
        channel,
        *taps,
        c.out_channels,
        c.channels,
        *c.filter[1:],
        math.prod(c.filter),
        call.chunks,
        _known(call)[1],
    )
    kernels["winolab_direct_filter"]((scale.padded(c), 1, 1), FILTER_THREADS, params, early)


def _parts(call: SplitTiling, prepared: int, group: int) -> int:
    """The address of a group's parts."""
    return prepared + call.rows_size + group * call.filter_size


def _split_filter_map(call: SplitTiling, address: int) -> TensorMap:
    """The tensor map of a group's parts: of 32 channels, taps, output channels."""
    c = call.correlation
    row = PAIR * SPLIT_CHANNELS * call.chunks
    steps = [row * math.prod(c.filter[i:]) for i in (3, 2, 1, 0)]
    sizes = (row, *c.filter[::-1], call.part_rows)
    shape = (PAIR * SPLIT_CHANNELS, 1, 1, 1, call.config.bm)
    return TensorMap.of(address, 2, sizes, tuple(steps), shape)


def launch_ffma(
    call: FfmaTiling,
    kernels: Kernels,
    a: View,
    b: View,
    out: View,
    workspace: int,
    wanted: int = 0,
) -> None:
    """Compute all groups on the current stream; ``wanted``: the address of flags that have to
    ask for it (fallback.cuh), or 0."""
    for group in range(call.correlation.groups):
        params = ffma_params(call, group, a, b, out, wanted)
        params = finished(params, out, group * call.correlation.out_channels, "float32")
        kernels["winolab_direct_ffma"]((call.grid, 1, 1), FFMA_THREADS, params)


def ffma_params(call: FfmaTiling, group: int, x: View, w: View, y: View, wanted: int) -> Params:
    """Parameters of a group's convolution."""
    c = call.correlation
    address, m, channel, *taps = correlation_params.filter_map(c, w, group, 4)
    params = FFMA_PARAMS.pack(
        x.address + 4 * group * c.channels,
        address,
        y.address + 4 * group * c.out_channels,
        wanted,
        *x.strides[:3],
        *y.strides[:3],
        m,
        channel,
        *taps,
        x.strides[3],
        y.strides[3],
        c.batch,
        *c.input,
        *c.output,
        c.channels,
        c.out_channels,
        call.blocks_m,
        call.blocks_n,
        *c.padding,
        *c.filter,
    )
    return Params.of(params, *(a.params() for a in call.axes))
