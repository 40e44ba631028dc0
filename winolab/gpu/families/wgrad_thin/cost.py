"""What thin layers' filter gradients take: their data, and the instructions of their threads."""

from __future__ import annotations

from collections.abc import Iterator

from winolab.gpu.families.reading import arrays
from winolab.gpu.families.wgrad import adding
from winolab.gpu.families.wgrad_thin.config import SLICES
from winolab.gpu.families.wgrad_thin.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, overlapped

FULL = (1.0, 0.5, 0.25)  # shares of the blocks that the device holds, beside a single block
LATER = 8  # numbers of 16 bits that a thread has in registers until a chunk is multiplied, at most


def gathered(plan: Tiling) -> tuple[int, int]:
    """Numbers of the few side that a thread gathers of a chunk, and those of them that it waits for
    one after another.

    16 bits are widened on their way. Loads come together where all of them wait in registers, and
    none depends on where a chunk ends; else each is stored before the next one is asked for.
    """
    v = plan.config
    at_once = max(1, v.threads // v.columns)
    every = -(-v.columns // v.threads) * -(-v.together // at_once)
    together = every <= LATER and v.together % at_once == 0
    return every, 0 if plan.precision == "fp32" or together else every


def multiplied(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Issue slots of a thread's products of a chunk, all unrolled."""
    v = plan.config
    widened = v.vector if plan.precision != "fp32" else 0
    loaded = -(-v.few // 4) * model.device.operand
    return v.positions * (v.few * v.vector + loaded + widened + model.wgrad_thin.read)


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: data and chunks overlap; slots' sums are added behind them, and shares'."""
    device, v, m, sharp = plan.device, plan.config, model.wgrad_thin, model.overlap.threads
    together = max(1, min(plan.resident, -(-plan.grid // device.multiprocessors)))
    issued = together * v.threads / (device.lanes * m.issued)
    slot = overlapped(sharp, issued, m.alone)  # cycles between a warp's instructions
    every, stalled = gathered(plan)
    run = slot * (multiplied(plan, model) + every * m.gathered)
    chunk = overlapped(sharp, run, m.waited) + stalled * m.stalled
    finished = m.waited + v.few * v.vector * m.stored * slot
    rounds = -(-plan.grid // (plan.resident * device.multiprocessors))
    cycles = rounds * (-(-plan.chunks // plan.shares) * chunk + finished)
    copied = copying(device, m.copied * arrays(plan.problem, plan.precision, plan.out_dtype), model)
    main = overlapped(sharp, copied, cycles / device.clock)
    begun = model.device.launch + m.start + m.cold * v.positions * v.few * v.vector
    bucket, moved = 4 * plan.gradient.weights, 2 * plan.shares - 1  # written and read
    return begun + main + adding(device, moved, bucket, model, 2 * SLICES)


def shares(plan: Tiling) -> Iterator[int]:
    """Numbers of shares worth considering, of one whose sum is not cut."""
    held = plan.resident * plan.device.multiprocessors / plan.blocks
    yield from {1, *(max(1, min(plan.chunks, int(held * full))) for full in FULL)}
