"""Launches of Ωα(n,r) on FFMA units: segments' shares of the sum, then what adds these up."""

from __future__ import annotations

from winolab.gpu.families.wgrad import (
    parameters,
    reduce,
)
from winolab.gpu.families.wgrad_ffma.config import THREADS
from winolab.gpu.families.wgrad_ffma.tiling import Tiling
from winolab.gpu.params import Kernels, View


def launch(
    call: Tiling,
    kernels: Kernels,
    a: View,
    b: View,
    out: View,
    workspace: int,
    wanted: int = 0,
) -> None:
    """Compute all groups on the current stream; ``wanted``: fallback.cuh's flags."""
    g, v = call.gradient, call.config
    params = parameters(
        g,
        (a, b, out),
        workspace,
        (v.bi, v.bo, call.tile.n),
        call.segments,
        call.pitch,
        call.blocks,
        call.fold // v.kc,
        wanted,
    )
    kernels["winolab_wgrad_ffma"]((call.grid, 1, 1), THREADS, params)
    if call.segments > 1:
        early = call.device.early_launches
        count = call.segments - 1
        reduce(kernels["winolab_reduce"], g, out, workspace, count, early, wanted)
