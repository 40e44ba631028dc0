"""Launches of grouped layers: their parameters, by where arrays lie."""

from __future__ import annotations

from dataclasses import replace

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import correlation_params
from winolab.gpu.families.epilogue import finished
from winolab.gpu.families.grouped.tiling import Tiling
from winolab.gpu.params import Kernels, Params, View, quotient
from winolab.gpu.planner.request import ITEMSIZE

PARAMS = layout("GroupedParams", "grouped/patches", include="quotient")


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View) -> None:
    """Compute all groups on the current stream."""
    params = finished(parameters(call, a, b, out), out, 0, call.out_dtype)
    kernels["winolab_grouped"]((call.grid, 1, 1), call.config.threads, params)


def parameters(call: Tiling, x: View, w: View, y: View) -> Params:
    """Parameters of the kernel."""
    c, v = call.correlation, call.config
    address, m, channel, *taps = correlation_params.filter_map(c, w, 0, ITEMSIZE[call.dtype])
    group = (c.channels if c.rotated else c.out_channels) * w.strides[0]
    x = x.alone(c.batch, c.input)
    divisors = v.columns, call.wide, call.high, call.own, call.across, call.down
    params = PARAMS.pack(
        x.address,
        address,
        y.address,
        *x.strides[:3],
        *y.strides[:3],
        m,
        channel,
        *taps,
        group,
        x.strides[3],
        y.strides[3],
        *c.input,
        *c.output,
        c.groups * c.channels,
        c.groups * c.out_channels,
        call.slices,
        call.workers,
        call.work_tiles,
        *c.padding,
        *c.filter,
        v.rows,
        v.positions,
        call.outputs,
        call.axes[0].most,
        call.pixels,
        call.own_rows,
        call.row_pitch,
        call.level_pitch,
        call.stage,
        int(_in_pairs(call, replace(w, address=address), (m, *taps, group), channel)),
        *(n for each in (*divisors, call.axes[0].outputs) for n in quotient(each)),
    )
    return Params.of(params, *(a.params() for a in call.axes))


def _in_pairs(call: Tiling, w: View, steps: tuple[int, ...], channel: int) -> bool:
    """Whether pairs of a group's channels that are summed lie aligned in the filter."""
    size = ITEMSIZE[call.dtype]
    return channel == 1 and w.in_vectors(2 * size, steps, size)
