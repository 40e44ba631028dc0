"""What direct products on wgmma take."""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import Any

from winolab.device import H100
from winolab.gpu.families.direct.config import KC, ROW_BYTES
from winolab.gpu.families.gamma_ffma.cost import clusters
from winolab.gpu.planner.request import ITEMSIZE

DEPTH, SIZE = 16, 2  # channels of a product; bytes of an element

# Fitted to 748 times of an H100 and 841 of an H200 in throughput_variants.jsonl (rms 6 % of what
# is picked, which takes 0.1 and 0.7 % more than the fastest): seconds of a launch, around the sum
# work tile of SUMS, and of a cluster's exchange; of a step at least, and its products over their
# least time; bytes a second that L2 gives all blocks, and that share of filters, which many ask
# for at once, fewer where output channels have several blocks; what a line more costs that a copy
# touches; bytes a second of arrays that are read and written once.
SUMS = 128 * 256
LAUNCH, ITEM, TOGETHER = 5.9e-6, 2.5e-6, 2.2e-6
STEP, PRODUCTS = 0.2e-6, 1.18
COPIES, SHARED, ASKEW, ARRAYS = 9.3e12, 0.32, 0.53, 2.85e12


def seconds(plan: Any) -> float:
    """Predicted time: a step's products, copies and least time overlap, and so do all steps and
    what arrays take."""
    c, v, device = plan.correlation, plan.config, plan.device
    cycles = device.clock / H100.clock
    memory = device.memory_rate
    slots = clusters(device, v.split_k)
    blocks = v.split_k * min(plan.work_tiles, slots)
    inner = c.out_channels if c.rotated else c.channels
    pixels = v.bn / (plan.axes[2].most if v.along else 1)
    shared = min(1.0, SHARED * plan.blocks_m**0.25)
    copied = _lines(c.channels) * pixels + shared * _lines(inner) * v.bm
    steps = -(-c.channels // KC)  # of a tap
    depth = (steps - (1 - plan.rest * DEPTH / KC if plan.rest else 0)) / steps  # on average
    products = PRODUCTS * v.bn * v.bm * KC * depth / (H100.matrix * H100.clock)
    step = overlapped(4, products, blocks * ROW_BYTES * copied / COPIES, STEP) / cycles
    item = ITEM * v.bn * v.bm / SUMS + TOGETHER * (v.split_k > 1)
    summed = sum(
        count * (-(-taps * plan.chunks // v.split_k) * step + item)
        for taps, count in turns(plan, slots)
    )
    y = c.batch * math.prod(c.output) * c.out_channels
    elements = c.channels * (c.batch * read(plan) + c.out_channels * math.prod(c.filter))
    size = SIZE * elements + ITEMSIZE[plan.out_dtype] * y
    return c.groups * (LAUNCH + overlapped(3, summed, size / (ARRAYS * memory)))


def turns(plan: Any, slots: int) -> list[tuple[int, int]]:
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


def read(plan: Any) -> int:
    """Positions of an image of x that some tap meets, at most."""
    met = (
        size if a.rotated else min(size, a.size * a.taps)
        for size, a in zip(plan.walked.input, plan.axes, strict=True)
    )
    return math.prod(met) * plan.walked.batch // plan.correlation.batch


@cache
def _lines(channels: int) -> float:
    """What a copy of KC channels costs by its lines of ROW_BYTES, where pixels have so many."""
    size, steps = SIZE * channels, -(-channels // KC)
    places = range(0, math.lcm(size, ROW_BYTES), size)  # of pixels
    parts = [
        (at + s, at + min(s + ROW_BYTES, size)) for at in places for s in range(0, size, ROW_BYTES)
    ]
    touched = sum((end - 1) // ROW_BYTES - begin // ROW_BYTES + 1 for begin, end in parts)
    return 1 + ASKEW * (touched / (len(places) * steps) - 1)


def overlapped(power: int, *seconds: float) -> float:
    """The time of what goes on at once, which is rarely as fast as the slowest alone."""
    return sum(s**power for s in seconds) ** (1 / power)
