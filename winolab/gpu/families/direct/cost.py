"""What direct products on wgmma take."""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import Protocol

from winolab.device import Device
from winolab.gpu.families.clusters import clusters
from winolab.gpu.families.direct.axes import Axis
from winolab.gpu.families.direct.config import KC, ROW_BYTES, Config
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.device_model import MODEL, DeviceModel, copying, from_l2, overlapped
from winolab.gpu.planner.request import ITEMSIZE

DEPTH, SIZE = 16, 2  # channels of a product; bytes of an element

SUMS = 128 * 256  # of a work tile whose sums fill the registers


class Walked(Protocol):
    """A plan of direct products, as far as its time depends on it."""

    @property
    def correlation(self) -> Correlation: ...
    @property
    def walked(self) -> Correlation: ...
    @property
    def config(self) -> Config: ...
    @property
    def device(self) -> Device: ...
    @property
    def out_dtype(self) -> str: ...
    @property
    def axes(self) -> tuple[Axis, Axis, Axis]: ...
    @property
    def work_tiles(self) -> int: ...
    @property
    def blocks_m(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def rest(self) -> int: ...


def seconds(plan: Walked, model: DeviceModel = MODEL) -> float:
    """Predicted time: a step's products, copies and least time overlap, and so do all steps and
    what arrays take."""
    c, v, device, m = plan.correlation, plan.config, plan.device, model.direct
    slots = clusters(device, v.split_k)
    blocks = v.split_k * min(plan.work_tiles, slots)
    inner = c.out_channels if c.rotated else c.channels
    pixels = v.bn / (plan.axes[2].most if v.along else 1)
    filters = min(1.0, m.filters * plan.blocks_m**0.25)
    copied = _lines(c.channels, m.askew) * pixels + filters * _lines(inner, m.askew) * v.bm
    steps = -(-c.channels // KC)  # of a tap
    depth = (steps - (1 - plan.rest * DEPTH / KC if plan.rest else 0)) / steps  # on average
    products = m.products * v.bn * v.bm * KC * depth / (device.matrix * device.clock)
    step = overlapped(4, products, from_l2(device, blocks * ROW_BYTES * copied, model), m.step)
    item = m.item * v.bn * v.bm / SUMS + m.cluster * (v.split_k > 1)
    summed = sum(
        count * (-(-taps * plan.chunks // v.split_k) * step + item)
        for taps, count in turns(plan, slots)
    )
    y = c.batch * math.prod(c.output) * c.out_channels
    elements = c.channels * (c.batch * read(plan) + c.out_channels * math.prod(c.filter))
    size = SIZE * elements + ITEMSIZE[plan.out_dtype] * y
    main = overlapped(3, summed, copying(device, size, model))
    return c.groups * (model.device.launch + m.start + main)


def turns(plan: Walked, slots: int) -> list[tuple[int, int]]:
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


def read(plan: Walked) -> int:
    """Positions of an image of x that some tap meets, at most."""
    met = (
        size if a.rotated else min(size, a.size * a.taps)
        for size, a in zip(plan.walked.input, plan.axes, strict=True)
    )
    return math.prod(met) * plan.walked.batch // plan.correlation.batch


@cache
def _lines(channels: int, askew: float) -> float:
    """What a copy of KC channels costs by its lines of ROW_BYTES, where pixels have so many."""
    size, steps = SIZE * channels, -(-channels // KC)
    places = range(0, math.lcm(size, ROW_BYTES), size)  # of pixels
    parts = [
        (at + s, at + min(s + ROW_BYTES, size)) for at in places for s in range(0, size, ROW_BYTES)
    ]
    touched = sum((end - 1) // ROW_BYTES - begin // ROW_BYTES + 1 for begin, end in parts)
    return 1 + askew * (touched / (len(places) * steps) - 1)
