"""Launches of grouped layers' filter gradients: the main one, and what adds shares up."""

from __future__ import annotations

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.wgrad import reduce
from winolab.gpu.families.wgrad_grouped.tiling import Tiling
from winolab.gpu.params import Kernels, Params, View, in_order, quotient

PARAMS = layout("WgradGroupedParams", "wgrad_grouped/tiles", include="quotient")
ROWS = layout("WgradGroupedRows", "wgrad_grouped/tiles", include="quotient")
AXIS = layout("WgradGroupedAxis", "wgrad_grouped/tiles")


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute all groups on the current stream."""
    params = parameters(call, a, b, out, workspace if call.shares > 1 else 0)
    kernels["winolab_wgrad_grouped"]((call.grid, 1, 1), call.threads, params)
    if call.shares > 1:
        device = call.device
        reduce(kernels["winolab_reduce"], call.gradient.sizes, out, workspace, call.shares,
               device.early_launches, multiprocessors=device.multiprocessors)  # fmt: skip


def parameters(call: Tiling, x: View, dy: View, dw: View, buckets: int) -> Params:
    """Parameters of the main kernel."""
    g, v = call.gradient, call.config
    x, dy = x.alone(g.batch, g.input), dy.alone(g.batch, g.output)
    divisors = v.columns, call.own, call.across, call.down, g.output[0]
    params = PARAMS.pack(
        x.address,
        dy.address,
        dw.address,
        buckets,
        *x.strides[:3],
        *dy.strides[:3],
        *dw.strides,
        x.strides[3],
        dy.strides[3],
        g.batch,
        g.groups * g.channels,
        g.groups * g.out_channels,
        call.slices,
        call.tap_blocks,
        call.shares,
        call.work_tiles,
        v.images,
        v.rows,
        v.outputs,
        call.positions,
        call.level_pitch,
        call.patch,
        call.stage,
        int(in_order(g.sizes, dw.strides, 1)),
        *(n for each in divisors for n in quotient(each)),
    )
    pixels, (of_x, of_dy) = call.pixels_apart, call.vectors
    copied = (
        _rows(call, call.high, call.row_pitch, call.wide * of_x),
        _rows(call, v.rows, v.columns * pixels[1], v.columns * of_dy),
    )
    axes = zip(g.input, g.output, g.filter, g.stride, g.dilation, g.padding, strict=True)
    return Params.of(params, *copied, *(AXIS.pack(*axis) for axis in axes))


def _rows(call: Tiling, count: int, pitch: int, vectors: int) -> Params:
    """Rows that are copied, of so many bytes apart and vectors each."""
    return ROWS.pack(count, pitch, max(1, call.threads // vectors), *quotient(vectors))
