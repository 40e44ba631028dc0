"""How long Ωα(n,r) on FFMA units takes: products and transforms of units, sums of segments."""

from __future__ import annotations

from functools import lru_cache

from winolab.algorithm import Tile
from winolab.device import Device
from winolab.gpu.families.reading import reading
from winolab.gpu.families.wgrad import (
    Gradient,
    Timing,
    instructions,
    narrow_rows,
)
from winolab.gpu.families.wgrad_ffma.config import FOLDS, Config
from winolab.gpu.families.wgrad_ffma.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel

# Instructions of G and BT by number of states, with moduli beyond points.
MODULI = {9: (22, 25), 10: (24, 20), 12: (27, 38), 15: (44, 65), 19: (70, 120)}
SCHEDULERS = 4  # of a multiprocessor, which take turns with a block's warps


@lru_cache(maxsize=256)
def ends(g: Gradient, tile: Tile, pitch: int) -> float:
    """The share of a warp's pairs of units one of which lies at an end of its row."""
    starts = range(0, pitch, 1 if pitch % tile.r else tile.r)
    behind = min(g.input[2] + g.padding[2] - tile.inputs, g.output[2] - tile.r) + 1
    before = max(0, -(-g.padding[2] // starts.step))
    inside = len(starts[before : max(0, -(-behind // starts.step))])
    share = (len(starts) - inside) / len(starts)
    return 1 - (1 - share) ** 2


def unit_cycles(
    g: Gradient, tile: Tile, v: Config, pitch: int, lanes: int, model: DeviceModel = MODEL
) -> dict[str, float]:
    """What a unit takes a block, averaged over the taps' rows and over a row's units."""
    m = model.wgrad_ffma
    edge = m.edge_wrapped if v.wrap else m.edge
    held = v.states(tile) // v.state_blocks
    idle = -(-v.warps // SCHEDULERS) * SCHEDULERS / v.warps
    products = held * v.bi * v.bo * idle
    counts = instructions(tile) if tile.minimal else MODULI[tile.alpha]
    operands = sum(products / channels for channels in v.lane(tile.alpha))
    filter_, input_ = (count / v.state_blocks + 2 * held for count in counts)
    # by channels that a load brings: kernel.cuh's load and load_some
    of_y, of_x = (v.co, v.ci) if v.vector else (1, 1)
    loads = v.bo / of_y * tile.r + v.bi / of_x * tile.inputs
    produced = v.bo * filter_ + v.bi * input_ + loads
    return {
        "products": g.met * products / lanes,
        "operands": g.met * model.device.operand * operands / 128,
        "transforms": g.met * m.producer * produced / 128,
        "row ends": g.met * edge * ends(g, tile, pitch) * loads / 128,
    }


def spent(plan: Tiling) -> dict[str, float]:
    """Seconds of a call, by what its longest block spends them on; they add up to all.

    "products" are FFMAs of all units and channels of its blocks, also of those that do not exist.
    """
    g, v, device = plan.gradient, plan.config, plan.device
    timing = timing_of(device, g, plan.tile, v, plan.pitch)
    work_tiles, length, outputs = timing.work(g.units(plan.tile, plan.pitch), plan.segments)
    cycles = unit_cycles(g, plan.tile, v, plan.pitch, device.lanes)
    found = {name: work_tiles * length * each / device.clock for name, each in cycles.items()}
    found["outputs"] = work_tiles * (timing.work_tile + outputs * timing.output)
    return {**found, "launch and sums": seconds(plan) - sum(found.values())}


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time of a call."""
    g = plan.gradient
    timing = timing_of(plan.device, g, plan.tile, plan.config, plan.pitch, model)
    main = timing.whole(g.units(plan.tile, plan.pitch), plan.segments, 4 * g.weights)
    return reading(plan.problem, "fp32", plan.device, main, model)


def timing_of(
    device: Device, g: Gradient, tile: Tile, v: Config, pitch: int, model: DeviceModel = MODEL
) -> Timing:
    """What the kernel takes on a device."""
    m = model.wgrad_ffma
    taps = g.filter[0] * g.filter[1] * -(-g.filter[2] // tile.n)
    store = m.store_parted if v.state_blocks > 1 else m.store
    stored = store * tile.n * v.bi * v.bo / v.state_blocks
    return Timing(
        g.groups * -(-g.channels // v.bi) * -(-g.out_channels // v.bo) * taps,
        device.multiprocessors // v.state_blocks,
        sum(unit_cycles(g, tile, v, pitch, device.lanes, model).values()) / device.clock,
        m.work_tile / device.clock,
        v.kc,
        FOLDS[tile.alpha][narrow_rows(tile, g.output[2])],
        stored / device.clock,
        device,
        model,
    )
