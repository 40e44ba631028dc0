"""What a depthwise plan takes: its data, its instructions and its cache traffic, side by side."""

from __future__ import annotations

from typing import Any

from winolab.device import REGISTERS
from winolab.gpu.families.depthwise.config import THREADS, registers
from winolab.gpu.planner.request import ITEMSIZE

# Seconds of a launch; bytes a second of a copy on an H100, read and written; instructions of a
# thread beside its FFMAs: at its beginning, of a column read, of one written; bytes a cycle that a
# multiprocessor's first cache gives.
LAUNCH = 2.5e-6
COPY = 2.7e12
BEGIN, READ, WRITTEN = 150, 4.0, 3.0
CACHE = 128
WAVES = 4  # of blocks that a gradient's parts fill at most


def walks(rows: int) -> list[int]:
    """Rows that a thread may walk down: all, and halves and sevenths of them."""
    found = {-(-rows // n) for n in (1, 2, 3, 4, 5, 7, 8, 14, 16)}
    return sorted(r for r in found if r >= min(rows, 4))


def parts(plan: Any) -> list[int]:
    """Shares of a gradient's sum: one, and those that fill the multiprocessors."""
    most = -(-plan.items // plan.config.slots)
    filled = (int(n * resident(plan) * plan.device.multiprocessors) for n in (0.25, 0.5, 1, 2))
    each = plan.blocks // plan.parts
    return sorted({min(most, max(1, n // each)) for n in filled} | {1})


def resident(plan: Any) -> int:
    """Blocks that a multiprocessor holds at once."""
    used = registers(plan.shape, plan.config, plan.gradient)
    return max(1, min(16, REGISTERS // (THREADS * min(255, used))))


def work(plan: Any) -> tuple[float, float]:
    """A thread's instructions, and the bytes that it reads and writes through the first cache."""
    d, v, rows = plan.shape, plan.config, plan.rows
    size, written = ITEMSIZE[plan.dtype], ITEMSIZE[plan.out_dtype]
    kd, kh, kw = d.filter
    sh, sw = d.stride[1:]
    if v.kind == "any":
        together = 8
        taps = d.taps * (1 if plan.gradient else d.multiplier if d.rotated or d.gathered else 1)
        loads = (v.columns + together - 1) / together if plan.strips else 1
        if v.columns == 4:
            loads = v.columns
        if plan.gradient:
            each = v.columns * together + READ * (2 * v.columns + together)
            count = -(-plan.items // (plan.parts * v.slots))
            return BEGIN + count * each, count * size * (2 * v.columns + together)
        return (
            BEGIN + taps * (v.columns + READ * loads + 1) + WRITTEN * v.columns,
            taps * (loads * size + 4) + written * v.columns,
        )
    if v.kind == "scatter":
        steps, columns = rows + (kh - 1) // sh, v.columns // sw + (kw - 1) // sw
        products, stored = d.taps * v.columns / sw * rows, rows * sh * v.columns
        read = steps * kd * columns
    else:
        open_ = -(-kh // sh)
        steps, columns = rows + open_ - 1, (v.columns - 1) * sw + kw
        products, stored = d.taps * v.columns * rows, rows * v.columns
        read = steps * sh * kd * columns
    if plan.gradient:
        count = -(-plan.items // (plan.parts * v.slots))
        read = count * (read + steps * v.columns)
        return (
            BEGIN + v.vector * (count * products + 3 * d.taps) + READ * read,
            size * v.vector * read,
        )
    widened = v.vector * (plan.precision != "fp32")
    return (
        BEGIN + v.vector * (products + d.taps) + (READ + widened) * read + WRITTEN * stored,
        v.vector * (size * read + written * stored + 4 * d.taps),
    )


def seconds(plan: Any) -> float:
    """Predicted time: data, instructions and cache traffic overlap, but for the last wave."""
    d, device = plan.shape, plan.device
    size = ITEMSIZE[plan.dtype]
    if plan.gradient:
        data = size * (d.inputs + d.outputs) + 2 * plan.workspace
    else:
        data = size * d.inputs + ITEMSIZE[plan.out_dtype] * d.outputs
    copied = data / (COPY * device.memory_rate)
    instructions, cached = work(plan)
    units = device.multiprocessors
    slots = units * resident(plan)
    waves = plan.blocks / slots
    full = max(waves, 1.0) if waves > WAVES else -(-plan.blocks // slots)
    blocks = full * resident(plan) if plan.blocks > units else 1
    issued = blocks * THREADS * instructions / device.lanes / device.clock
    moved = blocks * THREADS * cached / CACHE / device.clock
    latency = instructions * 4 / 4 / device.clock  # of one thread alone
    power = 3
    overlapped = sum(t**power for t in (copied, issued, moved, latency)) ** (1 / power)
    again = LAUNCH if plan.gradient and plan.parts > 1 else 0.0
    return LAUNCH + again + overlapped
