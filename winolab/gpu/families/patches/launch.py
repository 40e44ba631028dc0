"""The launch of products of patches: its parameters, by where arrays lie."""

from __future__ import annotations

from dataclasses import replace

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import correlation_params
from winolab.gpu.families.epilogue import finished
from winolab.gpu.families.patches.config import LANE, pairs, vector
from winolab.gpu.families.patches.tiling import Patches, Tiling
from winolab.gpu.params import MOST, Kernels, Params, View, quotient
from winolab.gpu.planner.request import ITEMSIZE

PARAMS = layout("PatchParams", "patches/kernel", include="quotient")


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View) -> None:
    """Compute it on the current stream."""
    params = finished(parameters(call, a, b, out), out, 0, call.out_dtype)
    kernels["winolab_patches"]((call.grid, 1, 1), call.config.threads, params)


def parameters(call: Tiling, x: View, w: View, y: View) -> Params:
    """Parameters of the kernel: of one row where all positions follow each other."""
    c, sizes = call.correlation, (ITEMSIZE[call.dtype], ITEMSIZE[call.out_dtype])
    address, m, channel, *taps = correlation_params.filter_map(c, w, 0, sizes[0])
    y_vectors = y.in_vectors(16, y.steps(c.batch, c.output), sizes[1])
    if x.even(c.batch, c.input) and y.even(c.batch, c.output):
        c = call.row
    cut = Patches(c, call.config)
    across, down = cut.tiles
    if c.input[2] == 1:  # nobody asks what lies behind a row's only pixel: rows are dense
        x = replace(x, strides=(*x.strides[:3], c.channels))
    x_vector, skip, units = _vectors(cut, x, sizes[0])
    divisors = (
        units, cut.lines, across, down, c.output[0],
        pairs(c) // (c.filter[0] * c.filter[1]), c.filter[1],
    )  # fmt: skip
    return PARAMS.pack(
        x.address,
        address,
        y.address,
        *x.strides[:3],
        *y.strides[:3],
        m,
        channel,
        *taps,
        x.strides[3],
        y.strides[3],
        *c.input,
        *c.output[1:],
        c.out_channels,
        *c.padding,
        c.filter[0],
        c.filter[2],
        *c.stride,
        *c.dilation,
        call.blocks_m,
        cut.work_tiles,
        cut.pitch,
        cut.rows * units,
        pairs(c),
        cut.steps,
        skip,
        cut.lead,
        x_vector,
        int(y_vectors),
        *(n for divisor in divisors for n in quotient(divisor)),
    )


def _vectors(cut: Patches, x: View, size: int) -> tuple[int, int, int]:
    """Elements of the vectors that x is copied in, 0 where pixels are copied one by one; numbers of
    none before a row's first; vectors of a row."""
    c = cut.correlation
    if vector(c.channels) == LANE:
        aligned = x.in_vectors(LANE * size, x.steps(c.batch, c.input), size)
        return LANE if aligned else 0, 0, cut.units
    begins = (s for s, n in zip(x.strides, (c.batch, *c.input[:2]), strict=False) if n > 1)
    steps = [*begins, c.input[2] * c.channels, cut.config.columns * c.stride[2] * c.channels]
    dense = x.strides[3] == c.channels and cut.reach * c.channels <= MOST
    for width in (LANE, LANE // 2):
        skip = -c.padding[2] * c.channels % width
        units = -(-(skip + cut.span * c.channels) // width)
        paired = cut.odd or skip % 2 == cut.lead
        if dense and paired and units <= cut.units and x.in_vectors(width * size, steps, size):
            return width, skip, units
    return 0, cut.lead, cut.units
