"""Launches of fused Ωα(n,r) on mma.sync: segments' shares of the sum, then what adds these up."""

from __future__ import annotations

from collections.abc import Sequence

from winolab.gpu.codegen.emit import named
from winolab.gpu.families.wgrad import parameters, reduce
from winolab.gpu.families.wgrad_mma.tiling import PartTiling, Tiling
from winolab.gpu.params import Kernels, Params, View


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute all groups on the current stream."""
    params = packed(call, (a, b, out), workspace)
    kernels["winolab_wgrad_mma"]((call.grid, 1, 1), call.config.threads, params)
    _add_up(call, kernels, out, workspace, call.segments)


def launch_pair(
    parts: Sequence[PartTiling], kernels: Kernels, a: View, b: View, out: View, workspace: int
) -> None:
    """The same by WinRS's plan: each kernel's segments, then the sum of all buckets."""
    for part, call in enumerate(parts):
        params = Params.of(packed(call, (a, b, out), workspace), call.params)
        name = named("winolab_wgrad_mma", part)
        kernels[name]((call.grid, 1, 1), call.config.threads, params)
    _add_up(parts[0], kernels, out, workspace, sum(call.segments for call in parts))


def _add_up(call: Tiling, kernels: Kernels, out: View, workspace: int, segments: int) -> None:
    if segments > 1:
        count, early = segments - call.first, call.device.early_launches
        reduce(kernels["winolab_reduce"], call.gradient.sizes, out, workspace, count, early)


def packed(call: Tiling, views: tuple[View, View, View], workspace: int) -> Params:
    """Parameters of the main kernel, those of flat segments."""
    g, v = call.gradient, call.config
    block = v.bi, v.bo, call.tile.n
    return parameters(g, views, workspace, block, call.segments, call.pitch, call.blocks)
