"""What a product of cuBLASLt takes; without times of its own, the least that it can take."""

from __future__ import annotations

from winolab.gpu.families.cublaslt.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, Cublaslt, DeviceModel, copying, overlapped
from winolab.gpu.planner.request import ITEMSIZE

LEAST = Cublaslt(start=0.0, products=1.0, work_tile=0.0, arrays=1.0)
SIDES = 64, 128  # of a block's results
PART = 256  # products of a part of a sum at least


def cut(plan: Tiling) -> tuple[int, int, int]:
    """Results of a block, blocks of the result, and parts of each sum: as many as fill the GPU and
    have room."""
    rows, columns, depth = plan.sizes
    block = blocks = 1
    for size in (rows, columns):
        side = next((s for s in SIDES if size <= s), SIDES[-1])
        block, blocks = block * side, blocks * -(-size // side)
    room = plan.workspace // (4 * rows * columns)
    parts = min(plan.device.multiprocessors // blocks, depth // PART, room)
    return block, blocks, max(1, parts)


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time."""
    m, device = model.cublaslt or LEAST, plan.device
    rows, columns, depth = plan.sizes
    block, blocks, parts = cut(plan)
    rate = (device.lanes if plan.precision == "fp32" else device.matrix) * device.clock
    each = m.products * block * -(-depth // parts) / rate + m.work_tile
    total = -(-blocks * parts // device.multiprocessors) * each
    operands, result = depth * (rows + columns), rows * columns
    size = operands * ITEMSIZE[plan.dtype] + result * ITEMSIZE[plan.out_dtype]
    arrays = m.arrays * copying(device, size, model)
    adding = 0.0
    if parts > 1:
        adding = model.device.launch + copying(device, 4 * result * (parts + 1), model)
    return model.device.launch + m.start + overlapped(3, total, arrays) + adding
