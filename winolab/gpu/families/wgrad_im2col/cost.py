"""How long direct filter gradients take whose copies walk positions."""

from __future__ import annotations

from winolab.gpu.families.clusters import clusters
from winolab.gpu.families.reading import reading
from winolab.gpu.families.wgrad_im2col.config import KC
from winolab.gpu.families.wgrad_im2col.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import overlapped


def seconds(call: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: rounds of clusters, a block's steps, what is around them."""
    device, v, m = call.device, call.config, model.wgrad_im2col
    at_once = clusters(device, v.split_k, model) * v.blocks
    together = min(v.blocks, -(-call.work_tiles * v.split_k // device.multiprocessors))
    sums = v.bo * v.bi * together
    products = m.products * KC * sums / device.matrix
    step = overlapped(model.overlap.call, products, m.step) / device.clock
    around = m.start + m.sum * sums * (1 + m.brought * (v.split_k > 1))
    rounds = -(-call.work_tiles // at_once)
    main = rounds * (-(-call.steps // v.split_k) * step + around / device.clock)
    return reading(call.problem, call.precision, device, model.device.launch + main, model)
