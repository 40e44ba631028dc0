"""Launches of Ωα(n,r) on FFMA units: segments' shares of the sum, then what adds these up."""

from __future__ import annotations

from collections.abc import Sequence

from winolab.gpu.codegen.emit import named
from winolab.gpu.families.wgrad import (
    parameters,
    reduce,
)
from winolab.gpu.families.wgrad_ffma.tiling import PartTiling, Tiling
from winolab.gpu.params import Kernels, Params, View


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
    params = packed(call, (a, b, out), workspace, wanted)
    kernels["winolab_wgrad_ffma"]((call.grid, 1, 1), call.config.threads, params)
    if call.segments > 1:
        early = call.device.early_launches
        count = call.segments - 1
        reduce(kernels["winolab_reduce"], call.gradient.sizes, out, workspace, count, early, wanted)


def launch_pair(
    parts: Sequence[PartTiling], kernels: Kernels, a: View, b: View, out: View, workspace: int
) -> None:
    """The same by WinRS's plan: each kernel's segments, then the sum of all buckets."""
    for part, call in enumerate(parts):
        params = Params.of(packed(call, (a, b, out), workspace), call.params)
        kernels[named("winolab_wgrad_ffma", part)]((call.grid, 1, 1), call.config.threads, params)
    first = parts[0]
    if count := sum(call.segments for call in parts) - 1:
        early = first.device.early_launches
        reduce(kernels["winolab_reduce"], first.gradient.sizes, out, workspace, count, early)


def packed(call: Tiling, views: tuple[View, View, View], workspace: int, wanted: int = 0) -> Params:
    """Parameters of the main kernel, those of flat segments."""
    v = call.config
    return parameters(
        call.gradient,
        views,
        workspace,
        (v.bi, v.bo, call.tile.n),
        call.segments,
        call.pitch,
        call.blocks,
        call.fold // v.kc,
        wanted,
    )
