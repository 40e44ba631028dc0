"""Launches of fused Ωα(n,r) on mma.sync: segments' shares of the sum, then what adds these up."""

from __future__ import annotations

from winolab.gpu.families.wgrad import parameters, reduce
from winolab.gpu.families.wgrad_mma.tiling import Tiling
from winolab.gpu.params import Kernels, View


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute all groups on the current stream."""
    g, v = call.gradient, call.config
    block = v.bi, v.bo, call.tile.n
    views = a, b, out
    params = parameters(g, views, workspace, block, call.segments, call.pitch, call.blocks)
    kernels["winolab_wgrad_mma"]((call.grid, 1, 1), v.threads, params)
    if call.segments > 1:
        count = call.segments - call.first
        early = call.device.early_launches
        reduce(kernels["winolab_reduce"], g, out, workspace, count, early)
