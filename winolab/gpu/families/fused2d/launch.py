"""Fused F(2×2, 3×3) in FP32 on FFMA units: one call's parameters and launches.

One launch transforms the filter of a group into the workspace, unless it is transformed in the
block; the next one does everything else.
"""

from __future__ import annotations

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import correlation_params
from winolab.gpu.families.epilogue import finished
from winolab.gpu.families.fused2d.tiling import FILTER_THREADS, Tiling
from winolab.gpu.params import Kernels, Params, View

FILTER_PARAMS = layout("Fused2dFilterParams", "fused2d/filter")
PARAMS = layout("Fused2dParams", "fused2d/block")


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute all groups on the current stream.

    ``a`` and ``out`` may have a fifth stride, of channels, which is 1 without it.
    """
    if not call.config.fused:
        prepare(call, kernels, b, workspace)
    run(call, kernels, a, b, workspace, out, call.device.early_launches)


def prepare(call: Tiling, kernels: Kernels, b: View, prepared: int) -> None:
    """Transform the filter."""
    for group in range(call.correlation.groups):
        params = filter_params(call, group, b, prepared)
        kernels["winolab_fused2d_filter"](call.filter_grid, FILTER_THREADS, params)


def run(
    call: Tiling, kernels: Kernels, x: View, w: View | None, prepared: int, y: View, early: bool
) -> None:
    """Convolve, with ``w`` or what is transformed; ``early``: the launch before transforms it."""
    for group in range(call.correlation.groups):
        params = main_params(call, group, x, w, prepared, y)
        params = finished(params, y, group * call.correlation.out_channels, "float32")
        begin = early and group == 0 and not call.config.fused
        kernels["winolab_fused2d"]((call.grid, 1, 1), call.config.threads, params, begin)


def filter_params(call: Tiling, group: int, w: View, prepared: int) -> Params:
    """Parameters of the transform of a group's filter."""
    c = call.correlation
    address, m, channel, _, row, column = correlation_params.filter_map(c, w, group, 4)
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
    c, v = call.correlation, call.config
    x_channel, y_channel = ((*view.strides, 1)[4] for view in (x, y))
    u, taps = prepared + group * call.transformed, (0, 0, 0, 0)
    if v.fused and w:
        u, m, channel, _, row, column = correlation_params.filter_map(c, w, group, 4)
        taps = (m, channel, row, column)
    _, rows, columns = call.boxes
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
        *call.image,
        rows,
        columns,
        call.chunks,
        call.blocks_m,
        call.tile_blocks,
        v.group or call.blocks_m,
        call.work_tiles,
    )
