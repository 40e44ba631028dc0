"""The launches that transform a filter for a plan of Γ on Tensor Cores: kernels/filter_*.cuh."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from winolab.gpu import geometry, scale
from winolab.gpu.launch import FLOAT, INT, LONG, POINTER, Kernels, Layout, View

M, CHUNKS = 16, 2  # output channels and stages of a block that transforms 16 bits
# Of split products: output channels of a block; its threads, many where there are more than
# LONG_WORK stages of filter rows for them, though few are there sooner.
ROWS, FEW, MANY, LONG_WORK = 4, 512, 768, 64

# The kernels' parameter struct, field for field.
PARAMS = Layout(
    ("w u rows", POINTER),
    ("m_stride c_stride depth_stride row_stride width_stride lowest", LONG),
    ("out_channels channels height width taps taps_height taps_width chunks outputs", INT),
    ("row_size step sharers", INT),
    ("known", FLOAT),
)


def constants(parts: int) -> dict[str, int]:
    """What filter_*.cuh are compiled with."""
    return {"FILTER_M": M} | ({"FILTER_ROWS": ROWS} if parts == 2 else {"FILTER_CHUNKS": CHUNKS})


class Shape(NamedTuple):
    """Of a group's launch."""

    grid: tuple[int, int, int]
    threads: int
    sharers: int = 1  # blocks that transform the same rows


def shape(plan: Any) -> Shape:
    """The blocks that serve a filter best."""
    rows, units = plan.blocks_m * plan.block, math.prod(plan.kept) * plan.chunks
    if plan.parts == 1:
        return Shape((rows // M, -(-plan.chunks // CHUNKS), math.prod(plan.kept)), 128)
    blocks = rows // ROWS
    # As many as fill the device with the one that describes the rows, and have something to do.
    room = plan.device.multiprocessors // blocks - 1
    sharers = max(1, min(room, -(-units // (FEW // 32))))
    threads = MANY if units > LONG_WORK * sharers else FEW
    return Shape((blocks * (sharers + (sharers > 1)), 1, 1), threads, sharers)


def transform(
    plan: Any, kernels: Kernels, w: View, prepared: int, known: float, follows: bool
) -> None:
    """All groups' filters, to where ``prepared`` points: rows' scales, then the filters.

    ``known``: the scale of all rows, or 0; ``follows``: launches of the call come before.
    """
    c, its = plan.correlation, shape(plan)
    for group in range(c.groups):
        address, *strides = geometry.filter_map(c, w, group, plan.size)
        lowest, step = scale.dense(c, strides[1:])
        params = PARAMS.pack(
            address,
            prepared + plan.rows + group * plan.transformed,
            scale.row(c, prepared, group, plan.block),
            *strides,
            lowest,
            c.out_channels,
            c.channels,
            *c.filter[1:],
            math.prod(plan.kept),
            *plan.kept[1:],
            plan.chunks,
            plan.outputs,
            c.channels * math.prod(c.filter),
            step,
            its.sharers,
            known,
        )
        early = plan.early(follows or group > 0)
        kernels["winolab_filter"](its.grid, its.threads, params, early)
