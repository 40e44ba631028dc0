"""How long direct filter gradients on wgmma take: a block's stages, and reading x and dy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.gpu.families.direct_products import TILE
from winolab.gpu.families.reading import read, reading
from winolab.gpu.families.wgrad import (
    Gradient,
    Timing,
)
from winolab.gpu.families.wgrad_direct.chunks import Columns, Cost, taken
from winolab.gpu.families.wgrad_direct.config import (
    KC,
    PRODUCERS,
    DirectConfig,
    NarrowConfig,
    SplitConfig,
)
from winolab.gpu.families.wgrad_direct.tiling import ColumnsTiling, NarrowTiling, SplitTiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import from_l2, overlapped
from winolab.gpu.planner.request import ITEMSIZE
from winolab.ref.arithmetic import split


def matrix_seconds(device: Device, products: float) -> float:
    """Seconds in which a multiprocessor's Tensor Cores make so many products at least."""
    return products / device.matrix / device.clock


def columns_cost(
    device: Device, v: DirectConfig, found: Columns, model: DeviceModel = MODEL
) -> Cost:
    """What a block's stages take: products of a column, and its elements, which L2 sends."""
    m = model.wgrad_direct
    products = m.products * v.n * v.bi * v.bo
    size = m.copied * 2 * (v.bi + v.bo) * KC * device.multiprocessors
    brought = 1 + m.brought * (v.n - 1) / found.pitch
    stage = brought * overlapped(
        model.overlap.call, matrix_seconds(device, products * KC), from_l2(device, size, model)
    )
    return Cost(stage, m.part / device.clock, 4 * v.n * v.bi * v.bo, device, model)


def columns_seconds(plan: ColumnsTiling, model: DeviceModel = MODEL) -> float:
    """Predicted time of a call."""
    of = columns_cost(plan.device, plan.config, plan.columns, model)
    main = taken(plan.columns, plan.shares, of)
    return reading(plan.problem, plan.precision, plan.device, main, model)


def narrow_timing(
    device: Device, g: Gradient, v: NarrowConfig, blocks: int, model: DeviceModel = MODEL
) -> Timing:
    """What a unit takes: products of a position, and its copies."""
    m = model.wgrad_direct
    products = m.products * v.bi * v.bo * v.n + m.copied_narrow * (v.bi + v.bo) * device.matrix
    unit = g.met * matrix_seconds(device, products)
    start = m.start / device.clock
    slots = device.multiprocessors
    return Timing(blocks, slots, unit, start, v.kc, filled=True, device=device, model=model)


def narrow_seconds(plan: NarrowTiling, model: DeviceModel = MODEL) -> float:
    """Predicted time of a call."""
    g, v = plan.gradient, plan.config
    of = narrow_timing(plan.device, g, v, plan.blocks, model)
    main = of.whole(g.units(TILE, plan.pitch), plan.segments, 4 * g.weights)
    return max(main, read(plan.problem, plan.precision, plan.device, model))


def met(g: Gradient, n: int, found: Columns) -> tuple[float, float]:
    """Per column of dy: of x, how many are multiplied and how many are brought, on average.

    Not those outside the image, unless a column's positions lie in different ones of x.
    """
    if found.chunks > 1:
        return n, 1 + (n - 1) / found.pitch
    taps, whole = range(n * len(found.useful)), sum(found.useful)
    wider = replace(g, output=(*g.output[:2], g.output[2] + n - 1))  # as many of x as tiles sweep
    return _columns_met(g, taps) / whole, _columns_met(wider, taps[::n]) / whole


def _columns_met(g: Gradient, taps: Iterable[int]) -> int:
    """Columns of dy that meet one of x, of all these taps."""
    return sum(last - first for first, last in (g.rows(2, tap) for tap in taps))


def split_cost(
    device: Device, g: Gradient, v: SplitConfig, found: Columns, model: DeviceModel = MODEL
) -> Cost:
    """What a block's stages take: products of a column; elements that L2 sends, in FP32, and that
    producers split and store."""
    m = model.wgrad_direct
    multiplied, brought = met(g, v.n, found)
    elements = KC * (v.bo + v.bi * brought)
    products = KC * m.split_products * split.products(2) * multiplied * v.bi * v.bo
    stage = overlapped(
        model.overlap.call,
        matrix_seconds(device, products),
        m.split_element * elements * PRODUCERS / v.producers / device.clock,
        from_l2(device, ITEMSIZE["float32"] * elements * device.multiprocessors, model),
    )
    return Cost(stage, m.split_part / device.clock, 4 * v.n * v.bi * v.bo, device, model)


def split_seconds(plan: SplitTiling, model: DeviceModel = MODEL) -> float:
    """Predicted time of a call."""
    of = split_cost(plan.device, plan.gradient, plan.config, plan.columns, model)
    return split_call(plan.problem, plan.device, taken(plan.columns, plan.shares, of), model)


def split_call(problem: Problem, device: Device, main: float, model: DeviceModel = MODEL) -> float:
    """Seconds with the launches about scales, before and behind the main ones."""
    return reading(problem, "fp32_split", device, main, model) + 2 * model.device.launch
