"""How long direct products take whose copies walk positions."""

from __future__ import annotations

import math

from winolab.gpu.families.boxes import lines
from winolab.gpu.families.clusters import Walk
from winolab.gpu.families.im2col.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, overlapped
from winolab.gpu.planner.request import DTYPES, ITEMSIZE


def seconds(call: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time: rounds of clusters, a block's steps, what is around them; arrays beside."""
    device, v, c = call.device, call.config, call.correlation
    m = model.im2col_split if v.tf32 else model.im2col
    inner = c.out_channels if c.rotated else c.channels
    touched = lines(c.channels, model.direct.askew), lines(inner, model.direct.askew)
    met = math.prod(
        min(size, outputs * taps)
        for size, outputs, taps in zip(c.input, c.output, c.filter, strict=True)
    )
    elements = c.batch * met * c.channels + math.prod(c.filter) * c.channels * c.out_channels
    y = c.batch * math.prod(c.output) * c.out_channels
    item, out = ITEMSIZE[DTYPES[call.precision]], ITEMSIZE[call.out_dtype]
    data = c.groups * item * elements
    main = Walk(
        v.bn, v.bm, v.blocks, v.split_k, call.work_tiles, call.steps, data, touched, v.times
    )
    arrays = copying(device, data + c.groups * out * y, model)
    start = model.device.launch + m.start / device.clock
    return start + overlapped(model.overlap.reading, main.seconds(device, m, model), arrays)
