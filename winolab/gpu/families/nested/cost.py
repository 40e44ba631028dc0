"""Predicted time of nested Winograd's launches."""

from __future__ import annotations

import math

from winolab.device import H100
from winolab.gpu.families.nested.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, from_l2
from winolab.gpu.planner.request import ITEMSIZE

# Launches of a call besides its batches' (x's sample and scan, the filter's transform); of a batch.
CALL, BATCH = 3, 3


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds of all launches, for data that split products serve."""
    c, device, m = plan.correlation, plan.device, model.nested
    cycles = device.clock * device.multiprocessors / H100.clock / H100.multiprocessors
    filter_ = plan.itemsize * c.channels * c.out_channels * math.prod(c.filter)
    # of 16 bits a stage has four products of 16 channels where split FP32 has six
    column = m.column if plan.split else m.column * 4 / 6
    stage = max(m.stage + column * plan.config.bm, m.row * plan.rows_stage) / cycles

    transform = m.transform * (1 if plan.split else m.narrow)

    def transformed(size: float) -> float:
        """Seconds of a transform that reads and writes so many bytes, of which L2 has some."""
        cached = min(size, m.cached)
        return copying(device, transform * (size - cached), model) + from_l2(
            device, transform * cached, model
        )

    batches = sum(count for count, _ in plan.alike)
    launches = BATCH * batches + (CALL + c.rotated if plan.split else 1)
    total = launches * model.device.launch + m.state * plan.states
    total += transformed(filter_ + plan.transformed)
    for i, (count, images) in enumerate(plan.alike):
        v, of_m = plan.moved(images)
        x = plan.itemsize * images * math.prod(c.input) * c.channels
        y = ITEMSIZE[plan.out_dtype] * images * math.prod(c.output) * c.out_channels
        # A filter is read again when its rows have been described.
        again = filter_ > model.device.kept * device.l2 and not c.rotated
        described = 0 if i or not plan.split else filter_ * (2 if again else 1)
        rounds = -(-plan.work_tiles(images) // device.multiprocessors)
        total += count * (transformed(x + v + described) + transformed(of_m + y))
        read = copying(device, m.products * (v + plan.transformed + of_m), model)
        total += count * max(rounds * plan.mean_steps * stage, read)
    return c.groups * total
