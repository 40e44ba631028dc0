"""The launch of direct filter gradients whose copies walk positions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.families.wgrad_im2col.config import CHANNELS, KC, MOST_SPLITS
from winolab.gpu.families.wgrad_im2col.tiling import Tiling
from winolab.gpu.params import VECTOR, Kernels, Params, PositionsMap, View
from winolab.gpu.planner.request import DTYPES, ITEMSIZE

PARAMS = layout("Im2colParams", "wgrad_im2col/kernel")


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View) -> None:
    """Compute all groups on the current stream."""
    kernels["winolab_wgrad_im2col"](call.grid, call.config.threads, parameters(call, a, b, out))


def parameters(call: Tiling, x: View, dy: View, dw: View) -> Params:
    """Parameters of the kernel: maps of x and dy, and where dw lies."""
    g = call.gradient
    lower, upper = call.corners
    steps = (1, *g.stride[::-1], 1)
    return PARAMS.pack(
        _map(call, x, g.groups * g.channels, g.input, steps, lower, upper),
        _map(call, dy, g.groups * g.out_channels, g.output, (1,) * 5, (0, 0, 0), (0, 0, 0)),
        dw.address,
        *dw.strides,
        *g.output,
        np.array([_begin(call, part) for part in range(MOST_SPLITS)], "int32").tobytes(),
        *_place(g, KC),
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
    return _place(call.gradient, call.steps * min(part, parts) // parts * KC)


def _place(g: Gradient, position: int) -> tuple[int, int, int, int]:
    """A position of dy, or how far one is: columns, rows, depths, images."""
    row, column = divmod(position, g.output[2])
    depth, row = divmod(row, g.output[1])
    image, depth = divmod(depth, g.output[0])
    return column, row, depth, image


def _map(
    call: Tiling,
    view: View,
    channels: int,
    size: tuple[int, int, int],
    steps: tuple[int, ...],
    lower: tuple[int, int, int],
    upper: tuple[int, int, int],
) -> PositionsMap:
    """The map of x or dy, whose copies bring CHANNELS of KC positions."""
    itemsize = ITEMSIZE[DTYPES[call.precision]]
    sizes = (channels, *size[::-1], call.gradient.batch)
    of = PositionsMap.of(view.address, itemsize, sizes, view.strides[::-1], (CHANNELS, KC, 1, 1, 1))
    return replace(of, steps=steps, lower=lower, upper=upper, rank=call.rank)


def _in_vectors(call: Tiling, dw: View) -> bool:
    """Whether eight neighbouring input channels lie side by side in dw, and aligned."""
    size = ITEMSIZE[call.out_dtype]
    *steps, last = dw.strides
    counts = (call.gradient.groups * call.gradient.out_channels, *call.gradient.filter)
    apart = [s for s, n in zip(steps, counts, strict=True) if n > 1]
    return last == 1 and dw.in_vectors(VECTOR, apart, size)
