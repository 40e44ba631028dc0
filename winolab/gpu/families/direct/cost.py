"""What direct products take: on wgmma, of 16 bits and of split data, and on FFMA units."""

from __future__ import annotations

import math
from itertools import product

from winolab.device import H100
from winolab.gpu.families.boxes import lines
from winolab.gpu.families.clusters import clusters
from winolab.gpu.families.direct.config import (
    FFMA_CHANNELS,
    FFMA_DEPTH,
    FFMA_POSITIONS,
    KC,
    PAIR,
    ROW_BYTES,
    SPLIT_CHANNELS,
)
from winolab.gpu.families.direct.tiling import DEPTH, SIZE, FfmaTiling, SplitTiling, Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, from_l2, of_passes, overlapped
from winolab.gpu.planner.request import ITEMSIZE
from winolab.ref.arithmetic.split import products

SECTOR = 32 // 4  # numbers of a sector of memory
SUMS = 128 * 256  # of a work tile whose sums fill the registers


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: a step's products, copies and least time overlap, and so do all steps and
    what arrays take."""
    c, v, device, m = plan.correlation, plan.config, plan.device, model.direct
    slots = clusters(device, v.split_k, model)
    blocks = v.split_k * min(plan.work_tiles, slots)
    inner = c.out_channels if c.rotated else c.channels
    pixels = v.bn / (plan.axes[2].most if v.along else 1)
    filters = min(1.0, m.filters * plan.blocks_m**m.filters_power)
    copied = lines(c.channels, m.askew) * pixels + filters * lines(inner, m.askew) * v.bm
    steps = -(-c.channels // KC)  # of a tap
    depth = (steps - (1 - plan.rest * DEPTH / KC if plan.rest else 0)) / steps  # on average
    rate = (m.along if v.along else m.products) / (device.matrix * device.clock)
    products = rate * v.bn * v.bm * KC * depth
    moved = from_l2(device, blocks * ROW_BYTES * copied, model)
    step = overlapped(model.overlap.stage, products, moved, m.step)
    work_tile = m.begin + m.work_tile * v.bn * v.bm / SUMS + m.cluster * (v.split_k > 1)
    passes = rounds(plan, slots)
    summed = sum(
        count * (-(-taps * plan.chunks // v.split_k) * step + work_tile) for taps, count in passes
    )
    y = c.batch * math.prod(c.output) * c.out_channels
    elements = c.channels * (c.batch * read(plan) + c.out_channels * math.prod(c.filter))
    size = SIZE * elements + ITEMSIZE[plan.out_dtype] * y
    sharp = of_passes(sum(count for _, count in passes), model)
    main = overlapped(sharp, summed, copying(device, size, model))
    return c.groups * (model.device.launch + m.start + main)


def rounds(plan: Tiling, slots: int) -> list[tuple[int, int]]:
    """Taps, and how many work tiles of a block that has one of the first: of
    the phases in turn."""
    each = plan.work_tiles // math.prod(a.phases for a in plan.axes)
    found, at = [], 0
    for runs in product(*(a.of_phases for a in plan.axes)):
        taps, count = map(math.prod, zip(*runs, strict=True))
        end = at + count * each
        found.append((taps, -(-end // slots) - -(-at // slots)))
        at = end
    return found


def read(plan: Tiling) -> int:
    """Positions of an image of x that some tap meets, at most."""
    met = (
        size if a.rotated else min(size, a.size * a.taps)
        for size, a in zip(plan.walked.input, plan.axes, strict=True)
    )
    return math.prod(met) * plan.walked.batch // plan.correlation.batch


def split_seconds(plan: SplitTiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: a warpgroup splits x, then multiplies; copies overlap with both, and all
    steps with what arrays take."""
    c, v, device, m = plan.correlation, plan.config, plan.device, model.direct_split
    cycles, slots = device.clock / H100.clock, clusters(device, v.split_k, model)
    blocks = v.split_k * min(plan.work_tiles, slots)
    work = products(PAIR) * v.bn * v.bm * SPLIT_CHANNELS
    multiplied = m.products * work / (H100.matrix * H100.clock)
    copied = blocks * 4 * SPLIT_CHANNELS * (v.bn + v.bm) / model.device.l2
    step = overlapped(model.overlap.stage, m.step + multiplied, copied) / cycles
    # Blocks of a cluster add up as those of 16 bits do: sums are in FP32 there, too.
    work_tile = m.work_tile * v.bn * v.bm / SUMS + model.direct.cluster * (v.split_k > 1)
    summed = sum(
        n * (-(-taps * plan.chunks // v.split_k) * step + work_tile)
        for taps, n in rounds(plan, slots)
    )
    y = c.batch * math.prod(c.output) * c.out_channels
    size = 4 * (c.channels * c.batch * read(plan) + y) + 2 * c.groups * plan.prepared_size
    moved = plan.prepared_size * (SECTOR if c.rotated else 1)
    parts = m.filter * copying(H100, moved, model)  # backward data reads a sector for each number
    arrays = m.arrays * copying(device, size, model)
    return m.start + parts + c.groups * overlapped(model.overlap.call, summed, arrays)


def ffma_seconds(plan: FfmaTiling, model: DeviceModel = MODEL) -> float:
    """Predicted time on FFMA units: rounds of blocks."""
    c, device = plan.correlation, plan.device
    steps = -(-c.channels // FFMA_DEPTH) * FFMA_DEPTH * math.prod(a.most for a in plan.axes)
    waves = -(-plan.grid // device.multiprocessors)
    work = waves * FFMA_POSITIONS * FFMA_CHANNELS * steps
    rate = model.direct.ffma * device.lanes * device.clock
    return c.groups * (model.device.launch + work / rate)
