"""Launches of depthwise kernels: the main one, and of filter gradients what adds shares up."""

from __future__ import annotations

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.depthwise.config import RECIPROCAL, Stage
from winolab.gpu.families.depthwise.tiling import Tiling
from winolab.gpu.families.epilogue import finished
from winolab.gpu.params import VECTOR, Kernels, Params, TensorMap, View, in_order
from winolab.gpu.planner.request import ITEMSIZE

PARAMS = layout("DepthwiseParams", "depthwise/arrays")
MAPS = layout("DepthwiseStagedParams", "depthwise/stages")  # before these
PLAIN = layout("DepthwisePlainParams", "depthwise/plain")
SUMMED, SUM_THREADS = 32, 256  # elements and threads of a block that adds shares up


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute all channels on the current stream."""
    plain = call.config.kind == "plain"
    packed = plain_params(call, a, b, out) if plain else main_params(call, a, b, out, workspace)
    params = finished(packed, out, 0, call.out_dtype)
    main = Params.of(maps(call, a, b), params) if call.config.stages else params
    kernels[f"winolab_depthwise_{call.file}"](call.grid, call.config.threads, main)
    if call.shares > 1:
        blocks = -(-call.shape.channels * call.shape.taps // SUMMED)
        early = call.device.early_launches
        kernels["winolab_depthwise_filter_sums"]((blocks, 1, 1), SUM_THREADS, params, early)


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
