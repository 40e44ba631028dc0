"""Launches of thin layers' filter gradients: the main one, and what adds shares up."""

from __future__ import annotations

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.wgrad_thin.config import SLICES, SUMS_AT_ONCE
from winolab.gpu.families.wgrad_thin.tiling import Tiling
from winolab.gpu.params import VECTOR, Kernels, Params, View
from winolab.gpu.planner.request import ITEMSIZE

PARAMS = layout("WgradThinParams", "wgrad_thin/kernel")


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute it on the current stream."""
    params = parameters(call, a, b, out, workspace)
    kernels["winolab_wgrad_thin"]((call.grid, 1, 1), call.config.threads, params)
    if call.shares > 1:
        blocks = -(-call.gradient.weights // SUMS_AT_ONCE)
        early = call.device.early_launches
        kernels["winolab_wgrad_thin_sums"]((blocks, 1, 1), SUMS_AT_ONCE * SLICES, params, early)


def parameters(call: Tiling, x: View, dy: View, dw: View, workspace: int) -> Params:
    """Parameters of both kernels."""
    g, of_x = call.gradient, call.config.wide == "x"
    wide, few = (x, dy) if of_x else (dy, x)
    m_stride, *taps, c_stride = dw.strides
    vectors = wide.in_vectors(VECTOR, wide.steps(g.batch, call.map), ITEMSIZE[call.dtype])
    axes = []
    sizes = g.output if of_x else g.input
    for along in zip(sizes, g.filter, g.padding, g.stride, g.dilation, strict=True):
        size, count, pad, stride, dilation = along
        how = (1, -pad, -dilation, stride) if of_x else (stride, pad, dilation, 1)
        axes += [size, count, *how]
    return PARAMS.pack(
        wide.address,
        few.address,
        dw.address,
        workspace,
        *wide.strides[:3],
        *few.strides[:3],
        *((c_stride, m_stride) if of_x else (m_stride, c_stride)),
        *taps,
        wide.strides[3],
        few.strides[3],
        *call.map,
        call.positions,
        call.channels,
        call.few_channels,
        call.blocks_m,
        call.blocks_n,
        call.shares,
        call.chunks,
        int(vectors),
        *axes,
    )
