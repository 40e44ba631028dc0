"""Fused F(2×2, 3×3), and F(3×3, 2×2) of filter gradients: one call's parameters and launches.

One launch transforms the filter of a group into the workspace, unless it is transformed in the
block; the next one does everything else; where the sum is in parts, a last one adds them up.
"""

from __future__ import annotations

from dataclasses import replace

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import correlation_params, wgrad
from winolab.gpu.families.epilogue import finished
from winolab.gpu.families.fused2d.tiling import FILTER_THREADS, Tiling
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.request import ITEMSIZE

FILTER_PARAMS = layout("Fused2dFilterParams", "fused2d/filter")
PARAMS = layout("Fused2dParams", "fused2d/block")


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute all groups on the current stream.

    ``a`` and ``out`` may have a fifth stride, of channels, which is 1 without it.
    """
    if not call.config.fused:
        prepare(call, kernels, b, workspace)
    buckets = workspace + call.prepared_size
    run(call, kernels, a, b, workspace, out, buckets, call.device.early_launches)


def prepare(call: Tiling, kernels: Kernels, b: View, prepared: int) -> None:
    """Transform the filter."""
    for group in range(call.correlation.groups):
        params = filter_params(call, group, b, prepared)
        kernels["winolab_fused2d_filter"](call.filter_grid, FILTER_THREADS, params)


def run(
    call: Tiling,
    kernels: Kernels,
    a: View,
    b: View | None,
    prepared: int,
    out: View,
    buckets: int,
    early: bool,
) -> None:
    """Compute with ``b`` or what is transformed; ``early``: the launch before transforms it."""
    several = call.split_k > 1
    stored = View(buckets, dense(call)) if several else out
    for group in range(call.correlation.groups):
        if call.gradient and b:
            params = gradient_params(call, group, a, b, stored)
        else:
            params = main_params(call, group, a, b, prepared, stored)
        params = finished(params, out, group * call.correlation.out_channels, call.out_dtype)
        begin = early and group == 0 and not call.config.fused
        kernels["winolab_fused2d"]((call.grid, 1, 1), call.config.threads, params, begin)
    if several:
        add_parts(call, kernels, out, buckets, call.device.early_launches)


def dense(call: Tiling) -> tuple[int, ...]:
    """Strides of a part of the result, dense and channels last."""
    c = call.correlation
    channels, sizes = c.groups * c.out_channels, c.output
    if call.gradient:
        channels, sizes = c.channels, c.filter
    _, height, width = sizes
    return height * width * channels, 0, width * channels, channels, 1


def add_parts(call: Tiling, kernels: Kernels, out: View, buckets: int, early: bool) -> None:
    """Launch the sum of the parts into the result."""
    c = call.correlation
    sizes = (c.batch, *c.output, c.groups * c.out_channels)
    if call.gradient:
        sizes = (c.groups * c.out_channels, *c.filter, c.channels)
    whole = replace(out, strides=(*out.strides, 1)[:5])
    wgrad.reduce(kernels["winolab_reduce"], sizes, whole, buckets, call.split_k, early)


def filter_params(call: Tiling, group: int, w: View, prepared: int) -> Params:
    """Parameters of the transform of a group's filter."""
    c = call.correlation
    address, m, channel, _, row, column = correlation_params.filter_map(
        c, w, group, ITEMSIZE[call.dtype]
    )
    return FILTER_PARAMS.pack(
        address,
        prepared + group * call.transformed,
        m,
        channel,
        row,
        column,
        c.out_channels,
        c.channels,
        call.chunks,
        call.blocks_m,
    )


def main_params(
    call: Tiling, group: int, x: View, w: View | None, prepared: int, y: View
) -> Params:
    """Parameters of a group's convolution: of the filter ``w`` where blocks transform it, else
    of the transformed filters at address ``prepared``."""
    c = call.correlation
    x_channel, y_channel = ((*view.strides, 1)[4] for view in (x, y))
    u, taps = prepared + group * call.transformed, (0, 0, 0, 0)
    if call.config.fused and w:
        u, m, channel, _, row, column = correlation_params.filter_map(
            c, w, group, ITEMSIZE[call.dtype]
        )
        taps = (m, channel, row, column)
    return PARAMS.pack(
        x.address + ITEMSIZE[call.dtype] * group * c.channels * x_channel,
        u,
        y.address + stored_size(call) * group * c.out_channels * y_channel,
        *(x.strides[0], *x.strides[2:4], x_channel),
        *(y.strides[0], *y.strides[2:4], y_channel),
        *taps,
        *sizes(call),
    )


def gradient_params(call: Tiling, group: int, x: View, dy: View, dw: View) -> Params:
    """Parameters of the gradient of a group's filter."""
    c = call.correlation
    size = ITEMSIZE[call.dtype]
    x_channel, dy_channel, dw_in = ((*view.strides, 1)[4] for view in (x, dy, dw))
    m = dw.strides[0]
    return PARAMS.pack(
        x.address + size * group * c.channels * x_channel,
        dy.address + size * group * c.out_channels * dy_channel,
        dw.address + stored_size(call) * group * c.out_channels * m,
        *(x.strides[0], *x.strides[2:4], x_channel),
        *(dw_in, *dw.strides[2:4], m),
        *(dy_channel, dy.strides[0], *dy.strides[2:4]),
        *sizes(call),
    )


def stored_size(call: Tiling) -> int:
    """Bytes of an element that the main kernel stores."""
    return 4 if call.split_k > 1 else ITEMSIZE[call.out_dtype]


def sizes(call: Tiling) -> tuple[int, ...]:
    """What a group's parameters end with."""
    c = call.correlation
    _, rows, columns = call.boxes
    return (
        call.outputs,
        c.batch,
        *c.input[1:],
        *c.output[1:],
        *c.padding[1:],
        call.terms,
        c.out_channels,
        *call.image,
        rows,
        columns,
        call.chunks,
        call.blocks_m,
        call.tile_blocks,
        call.config.group or call.blocks_m,
        call.work_tiles,
        c.channels,
        call.split_k,
    )
