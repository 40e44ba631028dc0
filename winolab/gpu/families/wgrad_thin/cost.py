"""What thin layers' filter gradients take: their data, and the instructions of their threads."""

from __future__ import annotations

import math
from collections.abc import Iterator

from winolab.gpu.families.wgrad import adding
from winolab.gpu.families.wgrad_thin.config import SLICES
from winolab.gpu.families.wgrad_thin.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel, copying, overlapped
from winolab.gpu.planner.request import ITEMSIZE

POWER = 2.2  # of what overlaps, as of thin layers' other directions
LINE = 128  # bytes
FULL = (1.0, 0.5, 0.25)  # shares of the blocks that the device holds, beside a single block


def data(plan: Tiling) -> int:
    """Bytes of x and dy, each read once, and of dw."""
    g, size = plan.gradient, ITEMSIZE[plan.dtype]
    read = math.prod(g.input) * g.channels + math.prod(g.output) * g.out_channels
    return size * g.batch * read + ITEMSIZE[plan.out_dtype] * g.weights


def issued(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Issue slots of a thread's chunk: products, vectors, what is gathered, places."""
    v, m = plan.config, model.wgrad_thin
    widened = v.vector if plan.precision != "fp32" else 0
    products = v.few * v.vector + -(-v.few // 4) * model.device.operand
    gathered = v.together * v.columns / v.threads
    described = -(-v.together // v.threads)
    return v.positions * (products + widened + m.read) + gathered * m.gathered + described * m.step


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: data and chunks overlap; slots' sums are added behind them, and shares'."""
    device, v, m = plan.device, plan.config, model.wgrad_thin
    together = max(1, min(plan.resident, -(-plan.grid // device.multiprocessors)))
    rate = device.lanes * m.issued / (together * v.threads)  # of a thread's issue slots a cycle
    rounds = -(-plan.grid // (plan.resident * device.multiprocessors))
    each = -(-plan.chunks // plan.shares)
    chunks = each * max(issued(plan, model) / rate, m.waited)
    finished = m.waited + v.few * v.vector * m.stored / rate
    size = ITEMSIZE[plan.dtype]
    side = LINE if v.width >= plan.channels else v.width * size
    parts = max(1.0, LINE / side) - 1
    copied = copying(device, m.copied * data(plan), model) * (1 + m.narrow * parts)
    main = overlapped(POWER, copied, rounds * (chunks + finished) / device.clock)
    bucket, moved = 4 * plan.gradient.weights, 2 * plan.shares - 1  # written and read
    added = adding(device, moved, bucket, model, 2 * SLICES)
    return model.device.launch + m.start + main + added


def shares(plan: Tiling) -> Iterator[int]:
    """Numbers of shares worth considering, of one whose sum is not cut."""
    held = plan.resident * plan.device.multiprocessors / plan.blocks
    yield from {1, *(max(1, min(plan.chunks, int(held * full))) for full in FULL)}
