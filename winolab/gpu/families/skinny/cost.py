"""What products of few positions take: their data, beside loads, products and waits of threads."""

from __future__ import annotations

import math

from winolab.gpu.families.skinny.config import WARP
from winolab.gpu.families.skinny.tiling import Tiling
from winolab.gpu.params import LINE
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, overlapped
from winolab.gpu.planner.request import ITEMSIZE

AT_ONCE = {"forward": 2}  # steps whose loads are on their way together; else OTHERS
OTHERS = 4
SECTOR = 32  # bytes of memory that come together


def data(plan: Tiling) -> int:
    """Bytes of the three arrays."""
    rows, columns, depth = plan.sizes
    read = depth * (rows + columns) * ITEMSIZE[plan.dtype]
    return read + rows * columns * ITEMSIZE[plan.out_dtype]


def loads(plan: Tiling) -> float:
    """Lines of memory that a warp's loads of a step bring, one each at least: its tiles lie beside
    each other and share rows, and its lanes of a tile have pieces of a sum."""
    v, size = plan.config, ITEMSIZE[plan.dtype]
    beside, vector = WARP // v.lanes, v.vector * size
    if plan.direction == "forward":
        along = v.lanes * vector
        return v.rows * _lines(1, along) + v.columns * _lines(beside, along)
    columns = _lines(v.lanes, beside * vector)
    if v.whole(plan.direction):
        return columns + _lines(v.lanes, vector)
    return columns + v.rows * (_lines(v.lanes, size) if plan.turned else _lines(1, v.lanes * size))


def _lines(pieces: int, size: int) -> float:
    """Those that so many pieces of memory of so many bytes have, in sectors."""
    return max(1.0, pieces * math.ceil(size / SECTOR) * SECTOR / LINE)


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: threads issue beside memory's answers, for which every few steps wait; then
    they add up and store."""
    v, m, device = plan.config, model.skinny, plan.device
    warps = -(-plan.grid // device.multiprocessors) * v.threads // WARP
    products = v.values * plan.step * WARP / device.lanes
    issued = warps * plan.steps * (m.load * loads(plan) + products)
    waits = -(-plan.steps // AT_ONCE.get(plan.direction, OTHERS))
    kept = max(1.0, v.values / v.lanes)
    exchanged = v.values - kept + max(0.0, math.log2(v.lanes / v.values))
    ends = warps * (m.added * (exchanged + (v.shares - 1) * kept) + m.stored * kept)
    arrays = copying(device, data(plan), model)
    several = not (plan.step > 1 or plan.direction == "forward" or v.rows == 1)
    apart = m.apart if several and not v.whole(plan.direction) else 1.0
    threads = m.waited * waits * apart + issued + ends
    busy = overlapped(model.overlap.threads, arrays, threads / device.clock)
    return model.device.launch + m.start + busy
