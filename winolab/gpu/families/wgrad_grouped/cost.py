"""What grouped layers' filter gradients take: their arrays, and what a multiprocessor does for work
tiles."""

from __future__ import annotations

from collections.abc import Iterator

from winolab.gpu.families.clusters import even
from winolab.gpu.families.reading import arrays
from winolab.gpu.families.wgrad import adding
from winolab.gpu.families.wgrad_grouped.config import EIGHT, ROWS, UNIT
from winolab.gpu.families.wgrad_grouped.tiling import Tiling
from winolab.gpu.params import SHARED_LINE, VECTOR
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, l2_bytes_a_cycle, overlapped

SCHEDULERS = 4  # of a multiprocessor
PRODUCT = UNIT * EIGHT * ROWS  # multiply-adds of 16 outputs
PARTS = 6  # times FP16's products of as many numbers: three, of TF32 parts at half the rate
FULL = (1.0, 0.5, 0.25, 0.125)  # shares of the blocks that the device holds, beside a single block


def vectors(plan: Tiling) -> int:
    """Vectors that a block copies for a work tile."""
    of_x, of_dy = plan.vectors
    return plan.levels * plan.high * plan.wide * of_x + plan.positions * of_dy


def warps(plan: Tiling) -> int:
    """Warps of a block's rows that sum 16 outputs each of a work tile, counted once for each of
    these."""
    v = plan.config
    return plan.positions // ROWS * v.units * plan.span.pieces


def loaded(plan: Tiling) -> int:
    """Cycles that shared memory takes to give a warp 16 outputs' operands."""
    taps, tiles = plan.config.taps, plan.span.tiles
    if plan.size == 4:
        return 8 + 4 * taps * tiles
    return 4 * (1 + (taps if tiles == 2 else -(-taps // 2)))


def shared(plan: Tiling) -> float:
    """Cycles that shared memory takes for a work tile."""
    return warps(plan) * loaded(plan) + vectors(plan) * VECTOR / SHARED_LINE


def products(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Cycles that products of a work tile take at the rate of mma.sync."""
    device = plan.device
    share = model.gamma_mma.hopper if device.compute_capability >= (9, 0) else 1.0
    each = plan.config.taps * plan.span.tiles * PRODUCT * (PARTS if plan.size == 4 else 1)
    return warps(plan) * each / (share * device.matrix)


def issued(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Issue slots of a scheduler for a work tile."""
    taps, tiles, m = plan.config.taps, plan.span.tiles, model.wgrad_grouped
    # FP32: of eight channels four numbers are read and split, six products and four sums made.
    step = taps * tiles * (4 * 5 + 6 + 4) + 8 * 5 if plan.size == 4 else taps * (2 + tiles)
    every = vectors(plan) / (2 * ROWS)
    return (warps(plan) * (step + m.tile) + m.read * every) / SCHEDULERS


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: arrays come beside what multiprocessors do, of the blocks that each has;
    behind the last work tile warps' sums are added, and shares' by another launch."""
    device, m = plan.device, model.wgrad_grouped
    together = min(plan.resident, -(-plan.grid // device.multiprocessors))
    each = overlapped(
        model.overlap.stage,
        m.shared * shared(plan),
        model.implicit_gemm.products * products(plan, model),
        issued(plan, model) / m.issued,
    )
    tile = overlapped(model.overlap.call, together * each, m.waited) + m.step
    waves = -(-plan.grid // (plan.resident * device.multiprocessors))
    sums = 4 * plan.config.taps * plan.span.tiles
    walked = waves * (m.waited + plan.rounds * tile + m.stored * sums)
    read = m.copied * copying(device, arrays(plan.problem, plan.precision, plan.out_dtype), model)
    busiest = waves * together * plan.rounds * vectors(plan) * VECTOR / l2_bytes_a_cycle(model)
    copied = max(read, busiest / device.clock)
    main = overlapped(model.overlap.call, copied, walked / device.clock)
    added = adding(device, plan.shares, 4 * plan.gradient.weights, model)
    return model.device.launch + m.start + main + added


def shares(plan: Tiling) -> Iterator[int]:
    """Numbers of shares worth considering, of one whose sum is not cut."""
    held = plan.resident * plan.device.multiprocessors / plan.blocks
    yield from {1, *(even(plan.work_tiles, max(1, int(held * full))) for full in FULL)}
