"""The launch of direct filter gradients whose copies walk positions."""

from __future__ import annotations

import numpy as np

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import im2col_maps
from winolab.gpu.families.clusters import MOST_SPLITS
from winolab.gpu.families.wgrad_im2col.tiling import Tiling
from winolab.gpu.params import VECTOR, Kernels, Params, View
from winolab.gpu.planner.request import DTYPES, ITEMSIZE

PARAMS = layout("Im2colParams", "wgrad_im2col/kernel")
AGAIN_PARAMS = layout("GradientAgainParams", "wgrad_im2col/again")  # of FP32, behind the others


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View) -> None:
    """Compute all groups on the current stream."""
    params = parameters(call, a, b, out)
    if call.config.tf32:
        params = Params.of(params, again(call, a, b))
    kernels["winolab_wgrad_im2col"](call.grid, call.config.threads, params)


def parameters(call: Tiling, x: View, dy: View, dw: View) -> Params:
    """Parameters of the kernel: maps of x and dy, and where dw lies."""
    g = call.gradient
    size = ITEMSIZE[DTYPES[call.precision]]
    return PARAMS.pack(
        im2col_maps.inputs(g, x, g.groups * g.channels, size, call.depth),
        im2col_maps.outputs(g, dy, g.groups * g.out_channels, size, call.depth),
        dw.address,
        *dw.strides,
        *g.output,
        np.array([_begin(call, part) for part in range(MOST_SPLITS)], "int32").tobytes(),
        *im2col_maps.place(g, call.depth),
        *g.stride,
        *g.dilation,
        *g.padding,
        *g.filter[1:],
        *(-(-(1 << 30) // n) for n in (g.filter[2], g.filter[1], call.blocks_in)),
        g.channels,
        g.out_channels,
        call.blocks_in,
        call.steps,
        int(_in_vectors(call, dw)),
    )


def again(call: Tiling, x: View, dy: View) -> Params:
    """What sums are added up by again that are not finite."""
    g = call.gradient
    strides = *x.strides[:4], *dy.strides[:4]
    return AGAIN_PARAMS.pack(x.address, dy.address, *strides, g.batch, *g.input)


def _begin(call: Tiling, part: int) -> tuple[int, int, int, int]:
    """The first position of a part of the steps, or of none."""
    parts = call.config.split_k
    return im2col_maps.place(call.gradient, call.steps * min(part, parts) // parts * call.depth)


def _in_vectors(call: Tiling, dw: View) -> bool:
    """Whether eight neighbouring input channels lie side by side in dw, and aligned."""
    size = ITEMSIZE[call.out_dtype]
    *steps, last = dw.strides
    counts = (call.gradient.groups * call.gradient.out_channels, *call.gradient.filter)
    apart = [s for s, n in zip(steps, counts, strict=True) if n > 1]
    return last == 1 and dw.in_vectors(VECTOR, apart, size)
