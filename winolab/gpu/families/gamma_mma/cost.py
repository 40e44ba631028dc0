"""How long Γ by mma.sync takes."""

from __future__ import annotations

from winolab.gpu.families.gamma.config import KC
from winolab.gpu.families.gamma.cost import of_call
from winolab.gpu.families.gamma.tiles import BM
from winolab.gpu.families.gamma_mma.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.ref.arithmetic.split import products


def main_seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds of a group's main kernel, in rounds of blocks: no products overlap transforms."""
    v, device, m = plan.config, plan.device, model.gamma_mma
    rate = device.matrix * (m.hopper if device.compute_capability[0] == 9 else 1)
    work = v.tile_states * BM * KC * v.share * products(plan.parts)
    transforms = v.stage_tiles(plan.tile) * plan.tile.alpha * m.state
    transforms *= m.scalar if v.xvec == 1 else 1
    stage = m.products * work / rate + transforms + m.stage
    rounds = -(-plan.work_tiles // plan.grid)
    return rounds * (plan.steps * stage + v.tile_states * m.work_tile) / device.clock


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds of a whole call."""
    main, groups = main_seconds(plan, model), plan.correlation.groups
    return of_call(plan.device, groups, main, plan.transformed, plan.parts, plan.padded, model)
