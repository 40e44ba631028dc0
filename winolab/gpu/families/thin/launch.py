"""Launches of thin layers: their parameters, by where arrays lie."""

from __future__ import annotations

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import correlation_params
from winolab.gpu.families.axes import axes
from winolab.gpu.families.epilogue import finished
from winolab.gpu.families.thin.config import THREADS
from winolab.gpu.families.thin.tiling import Tiling
from winolab.gpu.params import VECTOR, Kernels, Params, View, in_order
from winolab.gpu.planner.request import ITEMSIZE

PARAMS = layout("ThinParams", "thin/positions")


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View) -> None:
    """Compute it on the current stream."""
    params = finished(parameters(call, a, b, out), out, 0, call.out_dtype)
    kernels[f"winolab_thin_{call.config.kind}"]((call.grid, 1, 1), THREADS, params)


def parameters(call: Tiling, x: View, w: View, y: View) -> Params:
    """Parameters of the kernel: of one row where all positions follow each other."""
    c, size = call.correlation, ITEMSIZE[call.dtype]
    address, m, channel, *taps = correlation_params.filter_map(c, w, 0, size)
    vectors = x.in_vectors(VECTOR, x.steps(c.batch, c.input), size)
    if call.config.kind == "channels":
        out_size = ITEMSIZE[call.out_dtype]
        vectors = y.in_vectors(VECTOR, y.steps(c.batch, c.output), out_size)
    even = x.even(c.batch, c.input) and y.even(c.batch, c.output)
    flat = even and call.row is not c
    c = call.row if flat else c
    along = axes(c)
    params = PARAMS.pack(
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
        c.batch,
        *c.input,
        *c.output,
        c.channels,
        c.out_channels,
        call.blocks_m,
        call.blocks_n,
        call.work_tiles,
        *c.padding,
        *c.filter,
        call.phases,
        *_digits(THREADS // call.config.lanes, [a.outputs for a in along]),
        int(vectors),
        int(in_order(c.filter, taps, taps[-1])),
        int(flat),
    )
    return Params.of(params, *(a.params() for a in along))


def _digits(number: int, sizes: list[int]) -> list[int]:
    """A number as one of these dimensions' counts, the last one's last, and what is left first."""
    found = []
    for size in reversed(sizes):
        number, digit = divmod(number, size)
        found.append(digit)
    return [number, *reversed(found)]
