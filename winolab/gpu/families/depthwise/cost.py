"""What a depthwise plan takes: its data, and the steps of its blocks, side by side."""

from __future__ import annotations

from winolab.device import REGISTERS
from winolab.gpu.families.clusters import even
from winolab.gpu.families.depthwise.config import (
    THREADS,
    Reach,
    accesses,
    ahead,
    chunk,
    plane_registers,
    registers,
    static_memory,
    vector_stored,
    window,
)
from winolab.gpu.families.depthwise.tiling import TOGETHER, Tiling
from winolab.gpu.params import BANKS, LINE
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, overlapped
from winolab.gpu.planner.request import ITEMSIZE

SLICES, AHEAD = 8, 8  # of the sum of shares: threads of an element, loads
WARP = 32  # threads
ADDED = 10  # instructions by which a warp adds a tap up
BEGUN = 2  # steps' worth of instructions before the one step of a plain thread


def walks(rows: int) -> list[int]:
    """Rows that a thread may walk down: all, and halves and sevenths of them."""
    found = {-(-rows // n) for n in (1, 2, 3, 4, 5, 7, 8, 14, 16)}
    return sorted(r for r in found if r >= min(rows, 2))


def shares(plan: Tiling) -> list[int]:
    """Shares of a gradient's sum: one, and those that fill the multiprocessors."""
    most = plan.work_tiles if plan.config.stages else -(-plan.work_tiles // plan.config.slots)
    filled = (int(n * resident(plan) * plan.device.multiprocessors) for n in (0.25, 0.5, 1, 2))
    each = plan.blocks // plan.shares
    return sorted({even(most, max(1, n // each)) for n in filled} | {1})


def workers(plan: Tiling) -> int:
    """Blocks of a chunk of channels that fill the multiprocessors together."""
    return even(
        plan.work_tiles, max(1, resident(plan) * plan.device.multiprocessors // plan.chunks)
    )


def resident(plan: Tiling) -> int:
    """Blocks that a multiprocessor holds at once."""
    of = plan.shape, plan.config, plan.gradient
    if plan.config.kind == "planes":
        used = plane_registers(plan.shape, plan.config, ITEMSIZE[plan.dtype])
        return max(1, min(16, REGISTERS // (THREADS * min(255, used))))
    found = min(16, REGISTERS // (plan.config.threads * min(255, registers(*of))))
    size = max(plan.shared().values()) + static_memory(*of, ITEMSIZE[plan.dtype])
    found = min(found, plan.device.resident(size))
    return max(1, found)


def work(plan: Tiling) -> tuple[float, float, float, float]:
    """A block's steps of a work tile; of a step, a thread's FFMAs, vectors read and stored."""
    d, v, rows = plan.shape, plan.config, plan.rows
    if v.kind == "any":
        taps = d.filter[2] if plan.gradient else TOGETHER
        columns = v.columns if v.columns == 4 else (v.columns + TOGETHER - 1) / TOGETHER
        if plan.gradient:
            return 1.0, v.columns * TOGETHER, 2 * v.columns + TOGETHER, 0.0
        taps = d.taps * (d.multiplier if d.rotated or d.gathered else 1)
        return taps / TOGETHER, v.columns * TOGETHER, columns * TOGETHER + TOGETHER, 1.0
    _, columns, rows_read = window(d, v)
    if v.kind == "plain":  # which reads taps from shared memory
        read = d.filter[0] * d.filter[1] * columns + d.taps
        return 1.0, d.taps * v.vector * v.columns, read, v.columns
    stride_height, stride_width = d.stride[1:]
    if v.kind == "scatter":
        steps = rows + (d.filter[1] - 1) // stride_height
        products = d.taps * v.columns / stride_width
        stored = stride_height * v.columns
    else:
        steps = rows + -(-d.filter[1] // stride_height) - 1
        products, stored = d.taps * v.columns, v.columns
    read = rows_read * d.filter[0] * columns + (v.columns if plan.gradient else 0)
    kept = v.columns * (-(-d.filter[1] // stride_height) - 1) if plan.gradient else 0
    return steps, v.vector * (products + kept), read, 0 if plan.gradient else stored


def conflicts(plan: Tiling) -> int:
    """How many slots of a warp read a column from the same banks of shared memory."""
    v = plan.config
    if not v.stages:
        return 1
    width = max(1, v.channels * ITEMSIZE[plan.dtype] // 4)  # words of a slot's columns
    step = window(plan.shape, v)[0] * width
    places = [slot * step % BANKS // width for slot in range(max(1, min(32, BANKS // width)))]
    return max(places.count(place) for place in places)


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: data and steps overlap."""
    if plan.config.kind == "planes":
        return planes_seconds(plan, model)
    d, v, device, m = plan.shape, plan.config, plan.device, model.depthwise
    size, units = ITEMSIZE[plan.dtype], device.multiprocessors
    if plan.gradient:
        data = size * (d.inputs + d.outputs) + 2 * plan.workspace
        of_share = -(-plan.work_tiles // plan.shares)
        each = of_share if v.stages else -(-of_share // v.slots)
    else:
        data = size * d.inputs + ITEMSIZE[plan.out_dtype] * d.outputs
        each = -(-plan.work_tiles // plan.workers) if plan.workers else 1
    steps, products, read, stored = work(plan)
    plain = v.kind == "plain"
    widened = v.vector if plain or plan.precision != "fp32" else 0  # or masked
    issued = products + (m.read * conflicts(plan) + widened) * read + m.stored * stored
    issued += m.step * (1 + BEGUN * plain)
    held = resident(plan)
    rounds = -(-plan.blocks // (held * units))
    together = min(held, -(-plan.blocks // units))
    flight = min(model.overlap.flight, (v.stages - 1) * v.group)  # all stages but one
    least = m.least / flight if v.stages else m.waited * (not plain)  # which waits at its start
    cycles = max(issued * together * THREADS / device.lanes / m.issued, least)
    walked = rounds * each * steps * cycles / device.clock * (m.any if v.kind == "any" else 1)
    copied = copying(device, m.copied * data, model)
    if not v.stages:
        copied *= 1 + m.narrow * (max(1.0, LINE / (v.channels * size)) - 1)
    again = m.again + plan.shares / SLICES / AHEAD * m.trip if plan.shares > 1 else 0.0
    return model.device.launch + m.start + again + overlapped(model.overlap.threads, copied, walked)


def _lines(plan: Tiling, column: float, row: float) -> float:
    """Lines of memory that an access of a planes warp touches: threads are ``column`` bytes apart,
    and those with the next rows ``row``."""
    rows = WARP / plan.strips
    return max(1.0, WARP * column / LINE, 1 + rows * min(1.0, row / LINE))


def planes_seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time of planes: arrays, instructions, and lines that L1 looks up, side by side."""
    d, v, device, m = plan.shape, plan.config, plan.device, model.depthwise
    size, units = ITEMSIZE[plan.dtype], device.multiprocessors
    out_size = size if plan.gradient else ITEMSIZE[plan.out_dtype]  # of y, or dy
    down, along = Reach.of(d, 1, v.rows, chunk(d)), Reach.of(d, 2, v.columns, d.filter[2])
    passes = -(-d.filter[1] // chunk(d)) * (d.multiplier if d.rotated or d.gathered else 1)
    rows, taps = passes * down.size, passes * chunk(d) * d.filter[2]
    products = taps * v.rows * v.columns
    products /= d.stride[1] * d.stride[2] if d.gathered else 1
    reads = rows * len(accesses(d, v))
    ends = v.rows * v.columns / vector_stored(d, v, out_size)
    widened = rows * along.size if size == 2 else 0
    issued = products + m.read * reads + widened + m.stored * ends + m.step
    lines = _lines(plan, along.advance * size, down.advance * d.input[2] * size)
    stored_lines = _lines(plan, v.columns * out_size, v.rows * d.output[2] * out_size)
    there = min(1.0, d.input[1] / down.size)  # rows of a window
    looked_up = lines * reads * there + stored_lines * ends
    held = resident(plan)
    rounds = -(-plan.blocks // (held * units))
    together = -(-plan.blocks // (rounds * units))  # blocks of a multiprocessor
    tiles = 1
    if plan.gradient:  # whose threads add up all taps in the end
        tiles = -(-plan.work_tiles // (plan.shares * THREADS))
        issued += ADDED * taps / tiles
    else:  # whose threads read all taps
        issued += taps
        looked_up += min(WARP, 1 + WARP // (plan.strips * plan.segments)) * taps
    cycles = rounds * together * tiles * issued * THREADS / device.lanes / m.issued
    trips = rounds * tiles * passes * -(-down.size // ahead(d, v, size)) - 1  # but the start's
    walked = max(cycles, trips * m.waited) / device.clock
    looked_up *= rounds * together * tiles * (THREADS // WARP) / device.clock
    data = size * d.inputs + out_size * d.outputs + 2 * plan.workspace
    copied = copying(device, m.copied * data, model)
    again = m.again + plan.shares / SLICES / AHEAD * m.trip if plan.shares > 1 else 0.0
    busy = overlapped(model.overlap.threads, copied, walked, looked_up)
    return model.device.launch + m.start + again + busy
