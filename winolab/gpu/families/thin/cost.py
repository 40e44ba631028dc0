"""What thin layers take: their data, and the instructions of their threads, side by side."""

from __future__ import annotations

import math

from winolab.gpu.families.thin.config import THREADS
from winolab.gpu.families.thin.tiling import Tiling
from winolab.gpu.params import LINE
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, overlapped
from winolab.gpu.planner.request import ITEMSIZE


def data(plan: Tiling) -> int:
    """Bytes of x that taps meet, of w and of y."""
    c = plan.correlation
    read = plan.met + c.channels * c.out_channels * math.prod(c.filter)
    written = c.batch * c.out_channels * math.prod(c.output)
    return read * ITEMSIZE[plan.dtype] + written * ITEMSIZE[plan.out_dtype]


def side(plan: Tiling) -> int:
    """Bytes that the lanes of a position read or write at once: a line, where that is all of a
    pixel and the next lanes have the next one."""
    c, v, outputs = plan.correlation, plan.config, plan.config.kind == "outputs"
    whole = c.channels if outputs else c.out_channels
    size = ITEMSIZE[plan.dtype if outputs else plan.out_dtype]
    return LINE if v.width >= whole else v.width * size


def issued(plan: Tiling, model: DeviceModel = MODEL) -> tuple[float, float]:
    """Issue slots of a thread of a work tile, of phases on average, a step being a filter row; and
    how often it waits for memory: a filter row once a chunk of channels, whose other taps find x in
    L1."""
    c, v, m = plan.correlation, plan.config, model.thin
    taps, rows = math.prod(c.filter) / plan.phases, math.prod(c.filter[:2])
    rows /= math.prod(a.phases for a in plan.axes[:2])
    outputs = v.kind == "outputs"
    chunks = -(-c.channels // (v.width if outputs else v.few))
    loads, widened = (1, v.vector) if outputs else (v.few, 1)
    read = m.read + (widened if plan.precision != "fp32" else 0)
    products = v.few * v.vector * (v.positions + model.device.operand)
    walked = 0 if math.prod(c.filter) == 1 else 1 + rows  # one tap keeps no places
    step = walked * m.step + taps * chunks * (products + loads * read * v.positions)
    kept = max(1.0, v.positions / v.lanes) if outputs else v.positions
    stored = m.stored * kept * (v.few if outputs else 1)
    exchanged = 3 * v.few * (v.positions - 1 + math.log2(v.lanes)) if outputs and v.lanes > 1 else 0
    return step + stored + exchanged, max(1.0, rows) * chunks


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: data and steps overlap; filters are read first."""
    device, m, d = plan.device, model.thin, model.device
    slots, waits = issued(plan, model)
    together = min(plan.resident, -(-plan.grid // device.multiprocessors))
    rate = device.lanes * m.issued / (together * THREADS)  # of a thread's issue slots a cycle
    each = -(-plan.work_tiles // plan.workers)
    filled = plan.shared_memory / 4 / THREADS * (m.step + m.read)
    walked = max(filled / rate, m.waited) + each * max(slots / rate, m.waited * waits)
    parts = max(1.0, LINE / side(plan)) - 1
    copied = copying(device, m.copied * data(plan), model) * (1 + m.narrow * parts)
    return d.launch + m.start + overlapped(model.overlap.threads, copied, walked / device.clock)
