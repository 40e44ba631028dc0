"""How long Γ takes on FFMA units, and with what: a model of the longest block."""

from __future__ import annotations

import math

from winolab.gpu.families.clusters import clusters
from winolab.gpu.families.gamma_ffma.config import ACCUMULATORS, stages
from winolab.gpu.families.gamma_ffma.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, overlapped

FOLD_SLOTS = 2  # instructions by which an accumulator is added to its total and cleared
LANES = 128  # instructions that a multiprocessor's warps issue a cycle, of all threads


def spent(plan: Tiling, model: DeviceModel = MODEL) -> dict[str, float]:
    """Seconds of a call, by what its longest block spends them on; they add up to all.

    "products" are FFMAs of all tiles and channels of its blocks, also of those that do not exist.
    """
    v, alpha, device, m = plan.config, plan.tile.alpha, plan.device, model.gamma_ffma
    c = plan.correlation
    ffmas = v.kc * alpha * v.bm * v.bt  # of a stage
    lane_m, lane_tiles = v.lane(alpha)
    tiles = v.v_tiles / v.share + v.bm * v.fused  # transformed for a filter row
    slots = m.vector if v.xvec > 1 else m.scalar

    rounds = -(-plan.whole // plan.grid)
    at_once = clusters(device, v.split_k, model)
    shared = -(-(plan.work_tiles - plan.whole) // at_once)  # rounds by clusters
    of_tile = math.prod(plan.outer) * plan.chunks
    steps = rounds * of_tile + shared * -(-of_tile // v.split_k)
    sums = -(-stages(v, plan.tile, c) // v.partial) if v.partial else 1
    stage = {
        "products": ffmas / device.lanes,
        "operands": ffmas * model.device.operand * (1 / lane_m + 1 / lane_tiles) / LANES,
        "transforms": v.kc * tiles * slots * alpha / LANES,
    }
    if v.fold:
        stage["sums"] = (FOLD_SLOTS / (v.fold * v.kc) + m.fold) * stage["products"]
    stage["waits"] = _waits(plan, v.share * sum(stage.values()), model) / v.share
    cycles = {name: steps * each for name, each in stage.items()}
    around = rounds * sums * m.work_tile + shared * -(-sums // v.split_k) * m.cluster
    cycles["outputs"] = around * v.bm * v.bt * alpha / ACCUMULATORS
    found = {name: c.groups * each / device.clock for name, each in cycles.items()}
    if v.fused:
        return {**found, "launch": model.device.launch, "filter": 0.0}
    read = 4 * c.groups * math.prod(c.filter) * c.channels * c.out_channels
    filter_ = copying(device, read + plan.workspace, model)
    return {**found, "launch": 2 * model.device.launch, "filter": filter_}


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds of a call."""
    return sum(spent(plan, model).values())


def _waits(plan: Tiling, stage: float, model: DeviceModel) -> float:
    """Cycles that consumers wait in a stage of V, of so many cycles otherwise."""
    v, alpha, m = plan.config, plan.tile.alpha, model.gamma_ffma
    if not v.bulk:
        return stage * (m.earlier - 1)
    waits = 0.0
    if v.xvec > 1 and not v.load_warp:
        waits = overlapped(model.overlap.producers, stage, m.latency) - stage
    if alpha == 16:
        lane, _ = v.lane(alpha)
        share = 0.0 if v.load_warp else m.issuer
        share += m.ones * (v.producer_tiles - 1) if lane % 4 else 0.0
        share += m.in_clusters if v.split_k > 1 else 0.0
        share += m.all_shared if v.load_warp and not plan.whole else 0.0
        waits += share * stage
    return waits
