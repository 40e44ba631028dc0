"""How long direct filter gradients take whose copies walk positions."""

from __future__ import annotations

from winolab.gpu.families.clusters import Walk
from winolab.gpu.families.reading import operands, reading
from winolab.gpu.families.wgrad_im2col.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel


def seconds(call: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: rounds of clusters, a block's steps, what is around them."""
    device, v = call.device, call.config
    m = model.wgrad_im2col_split if v.tf32 else model.wgrad_im2col
    data = operands(call.problem, call.precision)
    main = Walk(v.bo, v.bi, v.blocks, v.split_k, call.work_tiles, call.steps, data, times=v.times)
    start = model.device.launch + m.start / device.clock
    taken = main.seconds(device, m, model)
    return start + reading(call.problem, call.precision, device, taken, model)
