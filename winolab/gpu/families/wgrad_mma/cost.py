"""How long fused Ωα(n,r) on mma.sync takes: products, transforms, shared memory and L2 of units.

Where registers hold columns, a stage waits for a load's latency beside all else, though they were
loaded a stage before; copies into shared memory, waited for by groups, hide it (docs/notes/086).
"""

from __future__ import annotations

from collections.abc import Mapping

from winolab.algorithm import Tile
from winolab.device import Device
from winolab.gpu.families.wgrad import Gradient, Timing, instructions
from winolab.gpu.families.wgrad_mma.config import Config
from winolab.gpu.families.wgrad_mma.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import l2_bytes_a_cycle, overlapped


def unit_cycles(
    tile: Tile, v: Config, device: Device, model: DeviceModel = MODEL
) -> dict[str, float]:
    """What a unit takes a block at least, by what binds it.

    Pairs of channels are transformed together where they are half2; their columns are loaded, and
    their states stored, together in any case.
    """
    m = model.wgrad_mma
    hopper = model.gamma_mma.hopper if device.compute_capability[0] == 9 else 1
    alpha, sharers = tile.alpha, v.sharers(tile.alpha)
    of_filter, of_input = instructions(tile)
    issued = m.transform * (v.bo * of_filter + v.bi * of_input)
    issued += m.transform * m.moved * (v.bo * (tile.r + alpha) + v.bi * 2 * alpha)
    columns = 2 * (v.bo * tile.r + v.bi * alpha)
    written = 2 * alpha * (v.bi + v.bo)
    written += 2 * columns if v.ahead else 0  # and read again by those that transform them
    read = 2 * alpha * (sharers * v.bi + v.bo)
    return {
        "products": alpha * v.bi * v.bo / (device.matrix * hopper),
        "transforms": issued / device.lanes / (2 if v.half2 else 1),
        "shared memory": m.shared * (written + read * (1 if v.pad else m.unpadded)) / 128,
        "L2": columns / l2_bytes_a_cycle(model),
    }


def stage_cycles(v: Config, unit: Mapping[str, float], model: DeviceModel = MODEL) -> float:
    """What a stage takes a block, of units that take that by what binds them."""
    m = model.wgrad_mma
    return v.kc * overlapped(m.sharp, *unit.values()) + m.stage + (0 if v.ahead else m.waited)


def timing_of(
    device: Device, g: Gradient, tile: Tile, v: Config, model: DeviceModel = MODEL
) -> Timing:
    """What the kernel takes on a device."""
    m = model.wgrad_mma
    taps = g.filter[0] * g.filter[1] * -(-g.filter[2] // tile.n)
    stage = stage_cycles(v, unit_cycles(tile, v, device, model), model)
    outputs = m.store * tile.n * v.bi * v.bo
    return Timing(
        g.groups * -(-g.channels // v.bi) * -(-g.out_channels // v.bo) * taps,
        device.multiprocessors,
        g.met * stage / v.kc / device.clock,
        (m.work_tile + outputs) / device.clock,
        v.kc,
        device=device,
        model=model,
    )


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time of a call."""
    g = plan.gradient
    timing = timing_of(plan.device, g, plan.tile, plan.config, model)
    return timing.whole(g.units(plan.tile, plan.pitch), plan.segments, 4 * g.weights)
