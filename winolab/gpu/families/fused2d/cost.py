"""How long the fused kernel takes, and with what: a model of the block with the most work tiles."""

from __future__ import annotations

from winolab.gpu.families.fused2d.config import KC
from winolab.gpu.families.fused2d.layouts import STATES, TILES
from winolab.gpu.families.fused2d.source import TILE
from winolab.gpu.families.fused2d.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying
from winolab.gpu.planner.request import ITEMSIZE

LANES = 128  # instructions that a multiprocessor's warps issue a cycle, of all threads


def spent(plan: Tiling, model: DeviceModel = MODEL) -> dict[str, float]:
    """Seconds of a call, by what its longest block spends them on; they add up to all."""
    c, v, device, m = plan.correlation, plan.config, plan.device, model.fused2d
    ffmas = KC * STATES * v.bm * TILES  # of a stage
    slots = m.vector if v.xvec > 1 else m.scalar
    filters = m.filter if v.teams > 1 else m.filter_alone
    m_first = m.first if v.teams > 1 else m.first_alone
    stage = {
        "products": ffmas / device.lanes,
        "operands": ffmas * model.device.operand * (8 / v.bm + 4 / TILES) / LANES,
        "transforms": KC * TILES * STATES * slots / LANES,
        "filter": KC * v.bm * STATES * filters / LANES if v.fused else 0.0,
    }
    rounds, chunks = -(-plan.work_tiles // plan.grid), -(-plan.chunks // plan.split_k)
    cycles = {name: rounds * chunks * each for name, each in stage.items()}
    share = v.bm / 64 * plan.tile.n**2 / TILE.n**2
    cycles["outputs"] = rounds * (m.work_tile + m.outputs * share)
    cycles["first"] = m.begin + chunks * m_first if v.fused else 0.0  # filters are in L2 later
    found = {name: c.groups * each / device.clock for name, each in cycles.items()}
    launches, copies = 1, copying(device, ITEMSIZE[plan.dtype] * plan.filters, model)
    if not v.fused:
        launches += 1
        copies += copying(device, plan.prepared_size, model)
    if plan.split_k > 1:
        launches += 1
        adding = plan.outputs * m.added / LANES / device.multiprocessors / device.clock
        copies += max(adding, copying(device, 4 * plan.outputs * (plan.split_k + 1), model))
    return {**found, "launch": launches * model.device.launch, "copies": copies}


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds of a call."""
    return sum(spent(plan, model).values())
