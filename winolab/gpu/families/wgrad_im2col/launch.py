"""The launch of direct filter gradients whose copies walk positions."""

from __future__ import annotations

import numpy as np

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import im2col_maps
from winolab.gpu.families.clusters import KC, MOST_SPLITS
from winolab.gpu.families.wgrad_im2col.tiling import Tiling
from winolab.gpu.params import VECTOR, Kernels, Params, View
from winolab.gpu.planner.request import DTYPES, ITEMSIZE

PARAMS = layout("Im2colParams", "wgrad_im2col/kernel")


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View) -> None:
    """Compute all groups on the current stream."""
    kernels["winolab_wgrad_im2col"](call.grid, call.config.threads, parameters(call, a, b, out))


def parameters(call: Tiling, x: View, dy: View, dw: View) -> Params:
    """Parameters of the kernel: maps of x and dy, and where dw lies."""
    g = call.gradient
    size = ITEMSIZE[DTYPES[call.precision]]
    return PARAMS.pack(
        im2col_maps.inputs(g, x, g.groups * g.channels, size, KC),
        im2col_maps.outputs(g, dy, g.groups * g.out_channels, size, KC),
        dw.address,
        *dw.strides,
        *g.output,
        np.array([_begin(call, part) for part in range(MOST_SPLITS)], "int32").tobytes(),
        *im2col_maps.place(g, KC),
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


def _begin(call: Tiling, part: int) -> tuple[int, int, int, int]:
    """The first position of a part of the steps, or of none."""
    parts = call.config.split_k
    return im2col_maps.place(call.gradient, call.steps * min(part, parts) // parts * KC)


def _in_vectors(call: Tiling, dw: View) -> bool:
    """Whether eight neighbouring input channels lie side by side in dw, and aligned."""
    size = ITEMSIZE[call.out_dtype]
    *steps, last = dw.strides
    counts = (call.gradient.groups * call.gradient.out_channels, *call.gradient.filter)
    apart = [s for s, n in zip(steps, counts, strict=True) if n > 1]
    return last == 1 and dw.in_vectors(VECTOR, apart, size)
