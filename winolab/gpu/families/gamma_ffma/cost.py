"""How long Γ takes on FFMA units, and with what: a model of the longest block, by an H100."""

from __future__ import annotations

import math
from typing import Any

from winolab.device import Device
from winolab.gpu.families.gamma_ffma.config import Config, stages

# Fitted to 60 rows of an H100 (rms 4 %; the block shape picked is at most 1 % from the fastest): an
# FFMA's issue slots beyond the first grow with the operands loaded for it; a transformed tile and
# channel takes issue slots and latency per state, more where loads are scalars; an item has a
# prologue and an epilogue, of blocks with finishers a shorter one, of a cluster a longer one; a
# launch begins and ends with nobody computing (cycles, of a block with all its accumulators).
OPERAND_OVERHEAD, TRANSFORM_SLOTS, SCALAR_SLOTS = 1.05, 18, 30
ITEM_CYCLES, FINISHED_CYCLES, CLUSTER_CYCLES, LAUNCH_CYCLES = 10_300, 7_900, 11_900, 20_500
SIX_STATES = 1.7  # times CLUSTER_CYCLES, of six states: three layers took 3 to 6 µs longer
FILTER_RATE = 2.5e12  # bytes a second of U, as the filter transform writes it
EARLIER_STEPS = 1.15, 1.5  # times that, below and at alpha 16: blocks for 8.x, run on an H100
# What consumers wait for besides, by 1,646 plans of 219 cases side by side on an H100 (in
# experiments/results/throughput_variants.jsonl; what is picked takes 0.4 % more than the fastest on
# average, 1.1 % before): a stage of V takes a producer's tile from load to store, in clusters more;
# producers that left registers to finishers take longer where each has several tiles; a ring of
# fewer than four stages of U runs empty.
LOAD_CYCLES, CLUSTER_LOAD_CYCLES = 2_400, 2_690
FINISHED_WAITS = (100, 2_000)  # cycles of a stage, of two tiles a producer and of more
RING, RING_SHARE = 4, 0.033  # of a stage, for each that the ring has less
# At alpha 16, shares of a stage: always; where a producer has one tile, and where it has more in
# clusters; in clusters of eight; for each further tile where a lane's outputs are no fours.
SIXTEEN, ONE_TILE, IN_CLUSTERS, OF_EIGHT, BY_ONES = 0.077, 0.06, 0.05, 0.05, 0.045
# The same with load warps, by 1,497 times of 65 cases (what is picked takes 0.5 % more than
# the fastest): where a lane has four outputs; for each further tile where its outputs are no fours;
# in parts, of blocks of 64 tiles alone and in clusters; of wide blocks of 32 tiles in clusters and
# of four rows; in clusters for seven filter rows; where clusters compute every item.
COURIER_FOUR, COURIER_ONES, COURIER_PARTS, COURIER_CLUSTERS = 0.05, 0.023, (0.036, 0.1), 0.085
COURIER_ROWS, COURIER_SEVEN, COURIER_SHARED = 0.075, 0.05, 0.096
# Two-level sums: an accumulator is added to its total and cleared, two issue slots; where consumers
# finish outputs themselves, a share of the products besides. Five plans of 24² and 14² × 256 were
# 3 to 9 % slower than without on an H100 (in the same file), which this says within 3 %.
FOLD_SLOTS, FOLD_SHARE = 2, 0.05
CLUSTER_SHARE = {1: 1.0, 2: 1.0, 3: 0.887, 4: 0.91, 8: 0.91}  # of an H100: 39, 30, 15 clusters


def clusters(device: Device, size: int) -> int:
    """Clusters of so many blocks that run at once, a block a multiprocessor: those of a GPC that
    make up no other one stay idle."""
    return max(1, int(device.multiprocessors * CLUSTER_SHARE[size] / size))


def spent(plan: Any) -> dict[str, float]:
    """Seconds of a call, by what its longest block spends them on; they add up to all.

    "products" are FFMAs of all tiles and channels of its blocks, also of those that do not exist.
    """
    v, alpha, device = plan.config, plan.tile.alpha, plan.device
    ffmas = v.kc * alpha * v.bm * v.bt  # of a stage
    lane_m, lane_tiles = v.lane(alpha)
    overhead = OPERAND_OVERHEAD * (1 / lane_m + 1 / lane_tiles)
    tiles = v.v_tiles / v.share  # transformed for a filter row
    slots = TRANSFORM_SLOTS if v.xvec > 1 else SCALAR_SLOTS
    slower = 1 if v.bulk else EARLIER_STEPS[alpha == 16]

    rounds = -(-plan.whole // plan.grid)
    shared = -(-(plan.work_tiles - plan.whole) // clusters(device, v.split_k))  # rounds by clusters
    of_item = math.prod(plan.outer) * plan.chunks
    steps = slower * (rounds * of_item + shared * -(-of_item // v.split_k))
    sums = 1
    if v.partial:
        sums = -(-stages(v, plan.tile, plan.correlation) // v.partial)
    around = FINISHED_CYCLES if v.finishers else ITEM_CYCLES
    in_cluster = CLUSTER_CYCLES * (SIX_STATES if alpha == 6 else 1)
    stage = {
        "products": ffmas / device.lanes,
        "operands": ffmas * overhead / 128,
        "transforms": v.kc * tiles * slots * alpha / 128,
    }
    if v.fold:
        own = 0 if v.finishers else FOLD_SHARE
        stage["sums"] = (FOLD_SLOTS / (v.fold * v.kc) + own) * stage["products"]
    made = v.share * sum(stage.values())  # of a stage of V
    stage["waits"] = _waits(plan, made) / v.share
    cycles = {
        **{name: steps * each for name, each in stage.items()},
        "outputs": rounds * sums * around + shared * -(-sums // v.split_k) * in_cluster,
        "launch": LAUNCH_CYCLES * v.accumulators(alpha) / 128,
    }
    groups = plan.correlation.groups
    found = {name: groups * each / device.clock for name, each in cycles.items()}
    return {**found, "filter": plan.workspace / FILTER_RATE}


def _waits(plan: Any, stage: float) -> float:
    """Cycles that consumers wait in a stage of V, of so many cycles otherwise."""
    v, alpha = plan.config, plan.tile.alpha
    lane, _ = v.lane(alpha)
    if v.load_warp:
        return stage * _load_warp_share(v, lane, plan.whole)
    if not v.bulk or alpha == 1:  # not measured
        return 0.0
    if alpha == 16:
        tiles = v.producer_tiles if v.xvec > 1 else 2  # of scalars more are loaded at once
        share = SIXTEEN + BY_ONES * (tiles - 1) * (lane > 4 and lane % 4 > 0)
        share += ONE_TILE if tiles == 1 else IN_CLUSTERS * (v.split_k > 1)
        return stage * (share + OF_EIGHT * (v.split_k == 8))
    waits = stage * RING_SHARE * (RING - v.u_stages)
    if v.xvec > 1:
        waits = max(waits, (CLUSTER_LOAD_CYCLES if v.split_k > 1 else LOAD_CYCLES) - stage)
    if v.finishers and v.producer_tiles > 1:
        waits += FINISHED_WAITS[min(v.producer_tiles, 3) - 2]
    return waits


def _load_warp_share(v: Config, lane: int, whole: int) -> float:
    """What share of a stage of V consumers, of ``lane`` outputs, wait where a load warp copies U;
    ``whole``: items that no cluster shares."""
    split = v.split_k > 1
    share = COURIER_FOUR if lane == 4 else 0.0
    if lane % 4:
        share += COURIER_ONES * (v.producer_tiles - 1)
    if v.bt == 64 and v.partial:
        share += COURIER_PARTS[split]
    elif v.bt < 64 and lane > 4:
        share += COURIER_CLUSTERS * split + COURIER_ROWS * (v.rows == 4)
    if split and v.share == 7 and (v.partial or v.bt < 64):
        share += COURIER_SEVEN
    return share if whole else share + COURIER_SHARED
