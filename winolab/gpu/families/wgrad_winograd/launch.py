"""Launches of Ωα(n,r) on Tensor Cores: FP16, BF16, and FP32 by split FP16 parts.

x and dy are transformed once for all channel blocks and filter rows into the workspace, in chunks
where a limit asks for them; one launch then runs the products of all states and taps as matrix
products on wgmma or mma.sync, adding to what earlier chunks left; of split products one adds up
what channels lost; a last one sums the segments (Kahan, or in FP64), applies the output transform
and says where the fallback is to follow (fallback.cuh).
"""

from __future__ import annotations

from dataclasses import replace
from math import pi, prod

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.scale import SHARE
from winolab.gpu.families.wgrad_winograd.tiling import Chunk, Tiling
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.request import DTYPES, ITEMSIZE

TRANSFORM_PARAMS = layout("TransformParams", "wgrad_winograd/transform")
GEMM_PARAMS = layout("GemmParams", "wgrad_winograd/scheduler")
LOSSES_PARAMS = layout("LossesParams", "wgrad_winograd/kernel")
FINISH_PARAMS = layout("FinishParams", "wgrad_winograd/kernel")
STEPS = 32  # whose losses a block of threads adds up: four groups, a part each


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute all groups on the current stream."""
    size, out_size = ITEMSIZE[DTYPES[call.precision]], ITEMSIZE[call.out_dtype]
    slices = [range(t, min(t + call.slice, call.taps)) for t in range(0, call.taps, call.slice)]
    for group in range(call.problem.groups):
        x = replace(a, address=a.address + size * group * call.channels)
        dy = replace(b, address=b.address + size * group * call.out_channels)
        first_weight = out_size * group * call.out_channels * out.strides[0]
        dw = replace(out, address=out.address + first_weight)
        for chunk in call.chunks:  # one, where there are several slices
            first = group == 0 and chunk is call.chunks[0]
            _transform(call, kernels, x, dy, workspace, chunk, first)
            for taps in slices:
                _products(call, kernels, workspace, chunk, taps)
                if call.checks_accuracy and taps is slices[0]:
                    _losses(call, kernels, workspace, chunk)
                if chunk is call.chunks[-1]:
                    _finish(call, kernels, dw, workspace, taps)


def _transform(
    call: Tiling, kernels: Kernels, x: View, dy: View, workspace: int, chunk: Chunk, first: bool
) -> None:
    (depth, _, width), (out_depth, _, out_width), _, (_, _, pad) = call.sizes
    size, early = ITEMSIZE[DTYPES[call.precision]], call.device.early_launches and not first
    u, v, u_scale, v_scale = (
        workspace + call.regions[name] for name in ("u", "v", "u_scale", "v_scale")
    )
    m, n = call.padded
    totals, x_losses, dy_losses = (
        workspace + call.regions[name] if call.checks_accuracy else 0
        for name in ("totals", "x_losses", "dy_losses")
    )
    params = TRANSFORM_PARAMS.pack(
        x.address + size * (chunk.image * x.strides[0] + chunk.x_row * x.strides[2]),
        v,
        v_scale,
        *x.strides,
        width,
        call.channels,
        n // 64,
        depth,
        chunk.x_rows,
        dy.address + size * (chunk.image * dy.strides[0] + chunk.row * dy.strides[2]),
        u,
        u_scale,
        *dy.strides,
        out_width,
        call.out_channels,
        m // 64,
        out_depth,
        chunk.rows,
        chunk.images,
        call.batch,
        -(-chunk.images // call.batch),
        call.units,
        call.pitch,
        pad,
        call.pieces,
        workspace if first and call.checks_accuracy else 0,
        totals if chunk is call.chunks[0] else 0,
        m + n,
        x_losses,
        dy_losses,
        *most(call),
    )
    block = call.config.ks if call.parts == 2 else 16
    u_positions, v_positions = call.positions(chunk)
    blocks = u_positions // block * (m // 64) + v_positions // block * (n // 64) * call.pieces
    kernels["winolab_wgrad_winograd_transform"]((blocks, 1, 1), 16 * block, params, early)


def _products(call: Tiling, kernels: Kernels, workspace: int, chunk: Chunk, taps: range) -> None:
    tiles_m, tiles_n = call.blocks
    params = _sums(call, workspace, chunk, taps)
    blocks = tiles_m * tiles_n * len(taps) * call.tile.alpha * call.segments
    early, threads = call.device.early_launches, call.config.threads
    kernel = kernels[f"winolab_wgrad_winograd_{call.config.products}"]
    kernel((blocks, 1, 1), threads, params, early)


def _losses(call: Tiling, kernels: Kernels, workspace: int, chunk: Chunk) -> None:
    """Add up what low parts may have lost in a chunk."""
    m, n = call.padded
    steps = [positions // call.config.ks for positions in call.positions(chunk)]
    regions = ("u_scale", "v_scale", "dy_losses", "x_losses", "totals", "flags")
    params = LOSSES_PARAMS.pack(
        *(workspace + call.regions[name] for name in regions),
        m // 64,
        n // 64,
        *steps,
        call.pieces,
    )
    grid = (m // 64 + n // 64 * call.pieces, -(-max(steps) // STEPS), 1)
    kernels["winolab_wgrad_winograd_losses"](grid, 256, params, call.device.early_launches)


def _finish(call: Tiling, kernels: Kernels, dw: View, workspace: int, taps: range) -> None:
    _, _, (_, taps_height, taps_width), _ = call.sizes
    params = FINISH_PARAMS.pack(
        workspace + call.regions["m"],
        dw.address,
        *dw.strides[:4],
        call.out_channels,
        call.channels,
        *call.padded,
        len(taps),
        taps.start,
        taps_height,
        call.pieces,
        taps_width,
        call.segments,
        workspace + call.regions["totals"] if call.checks_accuracy else 0,
        workspace if call.checks_accuracy else 0,
    )
    grid = (-(-call.channels * call.out_channels // 256), len(taps), 1)
    kernels["winolab_wgrad_winograd_finish"](grid, 256, params, call.device.early_launches)


def _sums(call: Tiling, workspace: int, chunk: Chunk, taps: range) -> Params:
    """Parameters of the kernel that sums over a chunk's positions."""
    (depth, _, _), (out_depth, _, _), (_, taps_height, _), (pad_depth, pad, _) = call.sizes
    m, n = call.padded
    return GEMM_PARAMS.pack(
        *(workspace + call.regions[name] for name in ("u", "v", "u_scale", "v_scale", "m")),
        *call.positions(chunk),
        m // 64,
        n // 64,
        *call.blocks,
        len(taps),
        taps.start,
        taps_height,
        call.pieces,
        call.segments,
        call.pitch,
        -(-chunk.images // call.batch),
        depth,
        chunk.x_rows,
        out_depth,
        chunk.rows,
        -pad_depth,
        chunk.row - pad - chunk.x_row,
        int(chunk is not call.chunks[0]),
    )


def most(call: Tiling) -> tuple[float, float]:
    """What a channel of x and of dy may lose, in squares of 2^-25/√3 as they reach results, times
    the squares of its elements: each half of what SHARE allows. Those of x count once a window.
    """
    both = call.problem.batch * prod(call.problem.output) / (pi * SHARE**2)
    return both * call.tile.r / call.tile.inputs, both
