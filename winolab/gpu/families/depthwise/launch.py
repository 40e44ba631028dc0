"""Launches of depthwise kernels: the main one, and of filter gradients what adds shares up."""

from __future__ import annotations

from collections.abc import Iterator

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.depthwise.config import RECIPROCAL, Reach, Stage, chunk, vector_stored
from winolab.gpu.families.depthwise.tiling import Tiling
from winolab.gpu.families.epilogue import finished
from winolab.gpu.params import (
    MOST,
    VECTOR,
    Kernels,
    Params,
    TensorMap,
    View,
    in_order,
    uncounted,
)
from winolab.gpu.planner.request import ITEMSIZE

PARAMS = layout("DepthwiseParams", "depthwise/arrays")
MAPS = layout("DepthwiseStagedParams", "depthwise/stages")  # before these
PLAIN = layout("DepthwisePlainParams", "depthwise/plain")
PLANES = layout("DepthwisePlanesParams", "depthwise/planes")
FILTER_PLANES = layout("DepthwiseFilterPlanesParams", "depthwise/filter_planes")
SUMMED, SUM_THREADS = 32, 256  # elements and threads of a block that adds shares up


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute all channels on the current stream."""
    if call.config.kind == "planes":
        launch_planes(call, kernels, a, b, out, workspace)
        return
    plain = call.config.kind == "plain"
    packed = plain_params(call, a, b, out) if plain else main_params(call, a, b, out, workspace)
    params = finished(packed, out, 0, call.out_dtype)
    main = Params.of(maps(call, a, b), params) if call.config.stages else params
    kernels[f"winolab_depthwise_{call.file}"](call.grid, call.config.threads, main)
    _add_shares(call, kernels, "winolab_depthwise_filter_sums", params)


def maps(call: Tiling, a: View, b: View) -> Params:
    """Tensor maps of x and of dy, where that comes along."""
    d, size = call.shape, ITEMSIZE[call.dtype]
    stage = Stage.of(d, call.config, call.gradient, size)
    x_channels = d.channels

    def described(v: View, sizes: tuple[int, ...], box: tuple[int, ...]) -> TensorMap:
        shape = (x_channels, *sizes[::-1], d.batch)
        return TensorMap.of(v.address, size, shape, v.strides[::-1], box, plain=True)

    dy = described(b, d.output, stage.dy) if stage.dy else None
    return MAPS.pack(described(a, d.input, stage.x), dy)


def main_params(call: Tiling, a: View, b: View, out: View, workspace: int) -> Params:
    """Parameters of all its kernels."""
    d = call.shape
    x, y, w = (a, b, out) if call.gradient else (a, out, b)
    x, y = x.alone(d.batch, d.input), y.alone(d.batch, d.output)
    # Kernels count elements between columns of a phase in 32 bits.
    if (most := call.phases[1] * max(x.strides[3], y.strides[3])) > MOST:
        raise uncounted("the number of elements between columns that a dilation parts", most)
    firsts = [d.windows(i) if call.config.kind == "scatter" else (0, 0) for i in (1, 2)]
    return PARAMS.pack(
        x.address,
        b.address,
        out.address,
        workspace,
        *x.strides[:3],
        *y.strides[:3],
        *w.strides[:4],
        x.strides[3],
        y.strides[3],
        d.batch,
        *d.input,
        *d.output,
        *d.padding,
        *d.stride,
        *d.dilation,
        *d.filter,
        d.channels,
        d.multiplier,
        *call.phases,
        firsts[0][0],
        firsts[1][0],
        firsts[0][1],
        call.strips,
        call.segments,
        call.rows,
        int(dense(call, w)),
        call.chunks,
        call.work_tiles,
        call.shares,
    )


def plain_params(call: Tiling, x: View, w: View, y: View) -> Params:
    """Parameters of plain.cuh."""
    d = call.shape
    return PLAIN.pack(
        x.address,
        w.address,
        y.address,
        *x.strides[:3],
        *y.strides[:3],
        x.strides[3] * ITEMSIZE[call.dtype],
        y.strides[3],
        *d.input,
        *d.output,
        *d.padding,
        d.stride[0],
        *d.dilation,
        d.channels,
        call.strips,
        -(-RECIPROCAL // call.strips),
        -(-RECIPROCAL // d.output[0]),
        int(dense(call, w)),
        *w.strides[:4],
    )


def dense(call: Tiling, w: View) -> bool:
    """Whether filters and their taps lie next to each other, and begin where vectors are read."""
    aligned = call.gradient or w.address % VECTOR == 0
    return aligned and in_order((2, *call.shape.filter), w.strides[:4], 1)


def launch_planes(
    call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int
) -> None:
    """The launches of planes: by the usual kernel where rows of x and y begin with vectors, and
    taps that are read lie next to each other.

    Raises ValueError for arrays whose columns are no neighbours."""
    d, v = call.shape, call.config
    size = ITEMSIZE[call.dtype]
    y, out_size = (b, size) if call.gradient else (out, ITEMSIZE[call.out_dtype])
    ends = (
        (a, d.input[2], v.vector, size),
        (y, d.output[2], vector_stored(d, v, out_size), out_size),
    )
    if any(view.strides[3] != 1 and width > 1 for view, width, _, _ in ends):
        raise ValueError(f"{v} works on arrays that lie channels-first")
    usual = all(view.in_vectors(n * each, steps(view), each) for view, _, n, each in ends)
    usual = usual and (call.gradient or in_order(d.filter[1:], b.strides[2:4], 1))
    name = f"winolab_depthwise_{call.file}"
    main = kernels[name if usual else f"{name}_any"]
    if not call.gradient:
        main(call.grid, v.threads, finished(planes_params(call, a, b, out), out, 0, call.out_dtype))
        return
    params = filter_planes_params(call, a, b, out, workspace)
    main(call.grid, v.threads, params)
    _add_shares(call, kernels, f"{name}_sums", params)


def _add_shares(call: Tiling, kernels: Kernels, name: str, params: Params) -> None:
    """The launch that adds up the shares of a filter gradient, if there are several."""
    if call.shares > 1:
        blocks = -(-call.shape.channels * call.shape.taps // SUMMED)
        kernels[name]((blocks, 1, 1), SUM_THREADS, params, call.device.early_launches)


def steps(view: View) -> tuple[int, int, int]:
    """From an image to the next, from a channel, from a row."""
    return view.strides[0], view.strides[4], view.strides[2]


def planes_params(call: Tiling, x: View, w: View, y: View) -> Params:
    """Parameters of planes.cuh."""
    return PLANES.pack(
        x.address,
        w.address,
        y.address,
        *_arrays_and_tiles(call, x, y, w, (call.strips, call.segments, call.shape.channels)),
    )


def filter_planes_params(call: Tiling, x: View, dy: View, dw: View, workspace: int) -> Params:
    """Parameters of filter_planes.cuh."""
    return FILTER_PLANES.pack(
        x.address,
        dy.address,
        dw.address,
        workspace,
        *_arrays_and_tiles(call, x, dy, dw, (call.strips, call.segments)),
        call.shares,
    )


def _arrays_and_tiles(
    call: Tiling, x: View, y: View, w: View, divided: tuple[int, ...]
) -> Iterator[int]:
    """Parameters that both have: how arrays lie, by what numbers of tiles are divided, the planes'
    sizes, and where the first tile begins."""
    d, v = call.shape, call.config
    down, along = Reach.of(d, 1, v.rows, chunk(d)), Reach.of(d, 2, v.columns, d.filter[2])
    divisors = [divisor(n) for n in divided]
    yield from (*steps(x), *steps(y), w.strides[0], *w.strides[2:4])
    yield from (reciprocal for reciprocal, _ in divisors)
    yield from (bits for _, bits in divisors)
    yield from (*d.input[1:], *d.output[1:], call.strips, call.segments, d.channels)
    yield from (down.begin, along.begin - along.begin % v.vector, call.work_tiles)


def divisor(n: int) -> tuple[int, int]:
    """A number and bits: n's multiples below 2^31 times the number are, shifted by the bits, exact.

    With s = ⌈log₂ n⌉ the number ⌈2^(31+s) / n⌉ is below 2^32 and too large by less than 2^s / n in
    31 + s bits, by which a product of less than 2^31 is off by less than 1 / n.
    """
    bits = 31 + (n - 1).bit_length()
    return -(-(1 << bits) // n), bits
