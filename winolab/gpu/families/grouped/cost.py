"""What grouped layers take: their arrays, and what a multiprocessor does for work tiles."""

from __future__ import annotations

import math

from winolab.gpu.families.grouped.config import EIGHTS, ROWS
from winolab.gpu.families.grouped.tiling import Tiling
from winolab.gpu.params import SHARED_LINE, VECTOR
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, from_l2, overlapped
from winolab.gpu.planner.request import ITEMSIZE

SCHEDULERS = 4  # of a multiprocessor
PRODUCT = 16 * 8 * 16  # multiply-adds of mma.sync


def data(plan: Tiling) -> int:
    """Bytes of x that taps meet, of w and of y."""
    c = plan.correlation
    weights = c.groups * c.channels * c.out_channels * math.prod(c.filter)
    written = c.batch * c.groups * c.out_channels * math.prod(c.output)
    return (plan.met + weights) * ITEMSIZE[plan.dtype] + written * ITEMSIZE[plan.out_dtype]


def patches(plan: Tiling) -> int:
    """Bytes of all patches, which L2 gives."""
    return plan.pixels * plan.vectors * VECTOR * plan.work_tiles * plan.slices * plan.phases


def shared(plan: Tiling) -> float:
    """Cycles that shared memory takes for a work tile: matrices, the filter, copies, exchanges."""
    v, (_, out) = plan.config, plan.bundle.eights
    each = plan.products * v.warp_rows * v.warp_columns
    matrices = plan.steps * v.bundles * 4
    filters = 0 if v.kept else plan.steps * v.bundles * out * 2 / v.tiles
    exchanges = 2 * EIGHTS if ITEMSIZE[plan.out_dtype] == 2 else 0
    brought = plan.pixels * plan.vectors * VECTOR
    return each * (matrices + filters + exchanges) + brought / SHARED_LINE


def products(plan: Tiling) -> float:
    """Cycles that products of a work tile take at the Tensor Cores' rate."""
    v, (_, out) = plan.config, plan.bundle.eights
    each = plan.products * v.warp_rows * v.warp_columns * plan.steps * v.bundles * out
    return each * PRODUCT / plan.device.matrix


def issued(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Issue slots of a scheduler for a work tile."""
    v, (_, out), m = plan.config, plan.bundle.eights, model.grouped
    step = v.bundles * (1 + out) + (1 if v.kept else 1 + v.bundles * out / v.tiles)
    tiles = plan.products * v.warp_rows * v.warp_columns * (plan.steps * step + m.tile)
    vectors = plan.pixels * plan.vectors / (2 * ROWS)
    return (tiles + m.read * vectors) / SCHEDULERS


def alone(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Cycles of a work tile's busiest warp, whose instructions wait for each other."""
    m = model.grouped
    return plan.products / plan.config.tiles * (plan.steps * m.step + m.stored)


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: arrays come beside what multiprocessors do, of the blocks that each has."""
    device, m, d = plan.device, model.grouped, model.device
    together = min(plan.resident, -(-plan.grid // device.multiprocessors))
    each = overlapped(
        model.overlap.stage,
        m.shared * shared(plan),
        model.implicit_gemm.products * products(plan),
        issued(plan, model) / m.issued,
    )
    tile = overlapped(model.overlap.call, together * each, alone(plan, model), m.waited)
    v = plan.config
    fragments = -(-plan.steps * v.bundles * plan.bundle.eights[1] // v.warp_rows)
    walked = m.waited + m.filled * fragments + plan.rounds * tile
    arrays = m.copied * copying(device, data(plan), model)
    copied = max(arrays, from_l2(device, patches(plan), model))
    return d.launch + m.start + overlapped(model.overlap.call, copied, walked / device.clock)
