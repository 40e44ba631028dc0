"""What products of patches take: their data, beside what a multiprocessor does for a work tile."""

from __future__ import annotations

import math

from winolab.gpu.families.patches.config import LANE
from winolab.gpu.families.patches.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, overlapped
from winolab.gpu.planner.request import ITEMSIZE

WARP = 32


def data(plan: Tiling) -> int:
    """Bytes of x, w and y."""
    c = plan.correlation
    weights = c.channels * c.out_channels * math.prod(c.filter)
    read = c.batch * c.channels * math.prod(c.input) + weights
    written = c.batch * c.out_channels * math.prod(c.output)
    return read * ITEMSIZE[plan.dtype] + written * ITEMSIZE[plan.out_dtype]


def work_tile(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Cycles of a multiprocessor: x is copied, pairs are read and multiplied, y is stored."""
    v, cut, m = plan.config, plan.patches, model.patches
    warps = v.threads // WARP
    # Reads of shared memory, a cycle each: pairs of 16 positions, the filter, places.
    read = cut.steps * warps * (4 * v.tiles + v.width // 4 + 1)
    products = cut.steps * warps * v.tiles * (v.width // 8) * m.products
    copied = m.copied * cut.rows * cut.loads
    stored = m.stored * v.rows * v.columns * v.width / LANE
    return copied + max(read, products) + stored


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: data and work tiles overlap; filters are read first."""
    device, m, d, cut = plan.device, model.patches, model.device, plan.patches
    together = min(plan.resident, -(-plan.grid // device.multiprocessors))
    rounds = -(-cut.work_tiles // plan.workers)
    tile = max(work_tile(plan, model) * together, m.waited)
    filled = m.filled * cut.steps * plan.config.width * together
    arrays = copying(device, data(plan), model)
    busy = overlapped(model.overlap.threads, arrays, rounds * tile / device.clock)
    return d.launch + m.start + filled / device.clock + busy
