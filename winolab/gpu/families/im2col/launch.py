"""The launch of direct products whose copies walk positions."""

from __future__ import annotations

import numpy as np

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import correlation_params, im2col_maps
from winolab.gpu.families.clusters import MOST_SPLITS
from winolab.gpu.families.epilogue import finished
from winolab.gpu.families.im2col.tiling import Tiling
from winolab.gpu.params import Kernels, Params, TensorMap, View, quotient
from winolab.gpu.planner.request import DTYPES, ITEMSIZE

PARAMS = layout("PositionsParams", "im2col/kernel", include="quotient")
AGAIN_PARAMS = layout("AgainParams", "positions_again")  # of FP32, behind the others


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View) -> None:
    """Compute all groups on the current stream."""
    params = parameters(call, a, b, out)
    if call.config.tf32:
        params = Params.of(params, again(call, a, b))
    params = finished(params, out, 0, call.out_dtype)
    kernels["winolab_im2col"](call.grid, call.config.threads, params)


def parameters(call: Tiling, x: View, w: View, y: View) -> Params:
    """Parameters of the kernel: maps of x and w, and where y lies."""
    c = call.correlation
    size = ITEMSIZE[DTYPES[call.precision]]
    return PARAMS.pack(
        im2col_maps.inputs(c, x, c.groups * c.channels, size, call.config.bn),
        _filters(call, w, size),
        y.address,
        *y.strides[:4],
        call.positions,
        *c.stride,
        *c.dilation,
        *c.padding,
        *c.filter,
        c.channels,
        c.out_channels,
        call.chunks,
        call.steps,
        np.array([_begin(call, part) for part in range(MOST_SPLITS)], "int32").tobytes(),
        *(n for size in (*c.output[::-1], call.blocks_m) for n in quotient(size)),
    )


def again(call: Tiling, x: View, w: View) -> Params:
    """What sums are added up by again that are not finite."""
    c = call.correlation
    address, *strides = correlation_params.filter_map(c, w, 0, ITEMSIZE["float32"])
    return AGAIN_PARAMS.pack(x.address, address, *x.strides[:4], *strides, *c.input)


def _begin(call: Tiling, part: int) -> tuple[int, int, int, int]:
    """The first step of a part, or the last one's end: channels' and a tap's number along width,
    height and depth."""
    parts = call.config.split_k
    tap, chunk = divmod(call.steps * min(part, parts) // parts, call.chunks)
    depth, height, width = call.correlation.filter
    line, tap_width = divmod(tap, width)
    return chunk, tap_width, line % height, line // height % depth


def _filters(call: Tiling, w: View, size: int) -> TensorMap:
    """The map of all groups' filters: neighbouring channels, taps, the others."""
    c, v = call.correlation, call.config
    inner, outer = (c.out_channels, c.channels) if c.rotated else (c.channels, c.out_channels)
    sizes = (inner, *c.filter[::-1], c.groups * outer)
    box = (call.depth, 1, 1, 1, call.depth if c.rotated else v.bm)
    return TensorMap.of(w.address, size, sizes, w.strides[3::-1], box)
