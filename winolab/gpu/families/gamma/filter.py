"""The launches that transform a filter for a plan of Γ on Tensor Cores: gamma_filter_*.cuh."""

from __future__ import annotations

import math
from typing import NamedTuple

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import correlation_params, scale
from winolab.gpu.families.gamma.tiling import Tiling
from winolab.gpu.families.gamma.workspace import Workspace
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.device_model import MODEL

M, CHUNKS = 16, 2  # output channels and stages of a block that transforms 16 bits
# Split products: output channels of a block; its threads, many where there are more than
# LONG_WORK stages of filter rows for them, though few are there sooner.
ROWS, FEW, MANY, LONG_WORK = 4, 512, 768, 64
# Two by PAIRED threads where four, of so many, would leave multiprocessors idle.
PAIR, PAIRED, IDLE = 2, 384, (128, 400)
# Blocks that have ROWS each together where these have no room, and L2 has not kept the filter until
# they are read again.
CLUSTER = 2
FIXED_ENTRY, SCALED_ENTRY, CLUSTER_ENTRY = (  # kernels' names, of the files that are called so
    f"winolab_gamma_filter_{name}" for name in ("fixed", "scaled", "cluster")
)
STATIC = 2048  # bytes of a block's shared memory that are not rows of the filter

# The kernels' parameter struct, field for field.
PARAMS = layout("GammaFilterParams", "gamma_filter")
# Split products have it behind these.
SCALED = layout("ScaledParams", "gamma_filter_scaled")


def constants(parts: int) -> dict[str, int]:
    """What gamma_filter_*.cuh are compiled with."""
    scaled = {"FILTER_ROWS": ROWS, "FILTER_CLUSTER": CLUSTER, "FILTER_MOST": MANY}
    return {"FILTER_M": M} | (scaled if parts == 2 else {"FILTER_CHUNKS": CHUNKS})


def file(parts: int, clusters: bool) -> str:
    """The kernels' file, of a device that has clusters or has not."""
    name = "fixed" if parts == 1 else "cluster" if clusters else "scaled"
    return f"gamma_filter_{name}.cuh"


class FilterLaunch(NamedTuple):
    """How a group's filter is transformed: blocks, threads, and by which kernel."""

    grid: tuple[int, int, int]
    threads: int
    sharers: int = 1  # blocks that transform the same rows
    rows: int = ROWS  # of a block, or of a cluster
    image: int = 0  # floats of shared memory of each, or 0 where it keeps none
    kernel: str = SCALED_ENTRY

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""
        return 4 * self.rows * self.image


def shape(call: Tiling, dense: bool = True) -> FilterLaunch:
    """The blocks that serve a filter best, whose rows are ``dense`` or are not."""
    outputs, units = call.blocks_m * call.block, math.prod(call.filter_taps) * call.chunks
    if call.parts == 1:
        grid = outputs // M, -(-call.chunks // CHUNKS), math.prod(call.filter_taps)
        return FilterLaunch(grid, 128, kernel=FIXED_ENTRY)
    scattered, image = call.correlation.rotated, _image(call)
    m = MODEL.gamma
    memory = (call.device.shared_memory - STATIC) * (m.scattered if scattered else 1)
    room = memory // (4 * image)
    spread = room >= ROWS and IDLE[0] < outputs < IDLE[1]
    squeezed = PAIR <= room < ROWS and not scattered
    rows = PAIR if spread or squeezed else ROWS
    blocks = outputs // rows
    # As many as fill the device with the one that describes the rows, and have something to do.
    idle = call.device.multiprocessors // blocks - 1
    sharers = max(1, min(idle, -(-units // (FEW // 32))))
    threads = PAIRED if spread else MANY if units > LONG_WORK * sharers else FEW
    large = 4 * outputs * _row(call.correlation) > MODEL.device.kept * call.device.l2
    if call.config.clusters and sharers == 1 and rows > room and large:
        return FilterLaunch((blocks, 1, 1), threads, CLUSTER, CLUSTER * ROWS, kernel=CLUSTER_ENTRY)
    grid = blocks * (sharers + (sharers > 1)), 1, 1
    return FilterLaunch(grid, threads, sharers, rows, image if dense and rows <= room else 0)


def shared(call: Tiling) -> dict[str, int]:
    """Bytes of dynamic shared memory of every kernel that may transform the filter."""
    if call.parts == 1:
        return {FIXED_ENTRY: 0}
    clustered = {CLUSTER_ENTRY: 0} if call.config.clusters else {}
    return {SCALED_ENTRY: shape(call).shared} | clustered


def _row(c: Correlation) -> int:
    """Elements of a row of w."""
    return c.channels * math.prod(c.filter)


def _image(call: Tiling) -> int:
    """Floats from a row's image in shared memory to the next's, in other banks."""
    size = _row(call.correlation)
    return (size + size // 64 * 4) // 32 * 32 + 48


def transform(
    call: Tiling,
    layout: Workspace,
    kernels: Kernels,
    w: View,
    prepared: int,
    known: float,
    follows: bool,
) -> None:
    """All groups' filters, to where ``prepared`` points: rows' scales, then the filters.

    ``known``: the scale of all rows, or 0; ``follows``: launches of the call come before.
    """
    c = call.correlation
    _, *strides = correlation_params.filter_map(c, w, 0, call.size)
    lowest, step = scale.dense(c, strides[1:])
    its = shape(call, step > 0)
    for group in range(c.groups):
        address, *_ = correlation_params.filter_map(c, w, group, call.size)
        params = PARAMS.pack(
            address,
            layout.filter(prepared, group),
            scale.row(c, prepared, group, call.block),
            *strides,
            c.out_channels,
            c.channels,
            *c.filter[1:],
            math.prod(call.filter_taps),
            *call.filter_taps[1:],
            call.chunks,
            call.outputs,
        )
        if call.parts == 2:
            row = lowest, _row(c), step, known
            sizes = c.channels, *c.filter  # where there is one element, its stride may be anything
            steps = (e if n > 1 else 0 for e, n in zip(strides[1:], sizes, strict=True))
            places = (e // step if its.image else 0 for e in (-lowest, *steps))
            its_own = SCALED.pack(*row, its.sharers, its.rows, its.image, *places)
            params = Params.of(params, its_own)
        early = (follows or group > 0) and call.device.early_launches
        kernels[its.kernel](its.grid, its.threads, params, early)
