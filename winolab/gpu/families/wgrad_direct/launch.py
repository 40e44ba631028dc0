"""Launches of direct filter gradients on wgmma: the sums, and what adds up their parts."""

from __future__ import annotations

import numpy as np

from winolab.device import Device
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import scale
from winolab.gpu.families.wgrad import (
    Gradient,
    parameters,
    parts_of,
    reduce,
)
from winolab.gpu.families.wgrad_direct.chunks import ORDERED, RUN, STARTS, Columns, Shares
from winolab.gpu.families.wgrad_direct.config import CONSUMERS, PRODUCERS, DirectConfig
from winolab.gpu.families.wgrad_direct.tiling import ColumnsTiling, NarrowTiling, SplitTiling
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.correlation import Correlation

# Its parameters behind gradient_scheduler.cuh's.
COLUMN_PARAMS = layout("ColumnParams", "wgrad_direct/column_sweep", ORDERED=ORDERED, STARTS=STARTS)
SPLIT_PARAMS = layout("SplitParams", "wgrad_direct/split_stage")  # behind column_sweep.cuh's
HEADERS = 2 * scale.HEADER  # bytes at the start of the workspace: x's, with the flags, and dy's


def launch_columns(
    call: ColumnsTiling, kernels: Kernels, a: View, b: View, out: View, workspace: int
) -> None:
    """Compute all groups on the current stream."""
    g, v = call.gradient, call.config
    params = packed(g, (a, b, out), workspace, v, call.columns, call.shares)
    grid, threads = (call.shares.grid, 1, 1), CONSUMERS + PRODUCERS
    kernels["winolab_wgrad_direct_columns"](grid, threads, params)
    gather(kernels, v, call.shares, params, call.device)


def launch_narrow(
    call: NarrowTiling, kernels: Kernels, a: View, b: View, out: View, workspace: int
) -> None:
    """Compute all groups on the current stream."""
    g, v = call.gradient, call.config
    params = parameters(
        g,
        (a, b, out),
        workspace,
        (v.bi, v.bo, v.n),
        call.segments,
        call.pitch,
        call.blocks,
    )
    grid, threads = (call.blocks * call.segments, 1, 1), CONSUMERS + v.producers
    kernels["winolab_wgrad_direct_narrow"](grid, threads, params)
    if call.segments > 1:
        early, fill = call.device.early_launches, call.device.multiprocessors
        reduce(kernels["winolab_reduce"], g.sizes, out, workspace, call.segments, early, 0, fill)


def launch_split(
    call: SplitTiling, kernels: Kernels, a: View, b: View, out: View, workspace: int
) -> None:
    """Compute all groups on the current stream."""
    g, v, early = call.gradient, call.config, call.device.early_launches
    headers = workspace, workspace + scale.HEADER
    arrays = [
        scale.parameters(Correlation.of(call.problem, c, unit=False), header, 0, view, wide=True)
        for view, c, header in zip((a, b), ("forward", "backward_data"), headers, strict=True)
    ]  # as inputs of such a correlation
    for array in arrays:
        scale.scale(kernels, array, early and array is not arrays[0])  # one beside the other
    params = Params.of(
        packed(g, (a, b, out), workspace + HEADERS, v, call.columns, call.shares),
        SPLIT_PARAMS.pack(*headers),
    )
    threads = CONSUMERS + v.producers
    kernels["winolab_wgrad_direct_split"]((call.shares.grid, 1, 1), threads, params, early)
    gather(kernels, v, call.shares, params, call.device)
    blocks = (2 * call.device.multiprocessors, 1, 1)
    kernels["winolab_wgrad_direct_scan"](blocks, scale.THREADS, Params.of(*arrays), early)


def packed(
    g: Gradient,
    views: tuple[View, View, View],
    workspace: int,
    v: DirectConfig,
    found: Columns,
    shares: Shares,
) -> Params:
    """column_sweep.cuh's parameters; in the workspace parts come first."""
    block = v.bi, v.bo, v.n
    return Params.of(
        parameters(g, views, workspace, block, 1, found.pitch, shares.work_tiles),
        COLUMN_PARAMS.pack(
            *(found.chunks, shares.alone, shares.sharing, shares.splits),
            len(shares.order) // shares.multiprocessors,
            np.array(shares.order, "uint16").tobytes(),
            np.array(shares.starts, "int32").tobytes(),
        ),
    )


def gather(
    kernels: Kernels, v: DirectConfig, shares: Shares, params: Params, device: Device
) -> None:
    """Add up the parts of work tiles that blocks share, if there are any: RUN sums a thread."""
    if shares.workspace:
        runs = shares.shared * (v.n * v.bi * v.bo // CONSUMERS // RUN)
        count = shares.splits or -(-shares.sharing // shares.shared)
        grid = runs, parts_of(count, runs, device.multiprocessors), 1
        kernels["winolab_wgrad_direct_gather"](grid, CONSUMERS, params, device.early_launches)
