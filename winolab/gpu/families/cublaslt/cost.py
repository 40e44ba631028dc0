"""What a product of cuBLASLt takes: blocks of products beside a copy of the matrices."""

from __future__ import annotations

from winolab.gpu.families.cublaslt.tiling import Tiling
from winolab.gpu.params import VECTOR
from winolab.gpu.planner.device_model import MODEL, DeviceModel, copying, overlapped
from winolab.gpu.planner.request import ITEMSIZE

SIDES = 64, 128  # of a block's results
PART = 256  # products of a part of a sum at least


def cut(plan: Tiling, most: int) -> tuple[int, int, int]:
    """Results of a block of up to ``most`` rows and columns, blocks of the result, and parts of
    each sum: as many as fill the GPU and have room."""
    rows, columns, depth = plan.sizes
    block = blocks = 1
    for size in (rows, columns):
        side = next((s for s in SIDES if size <= s or s == most), most)
        block, blocks = block * side, blocks * -(-size // side)
    room = plan.workspace // (4 * rows * columns)
    parts = min(plan.device.multiprocessors // blocks, depth // PART, room)
    return block, blocks, max(1, parts)


def products(plan: Tiling, most: int, model: DeviceModel) -> float:
    """Seconds of the products, and of adding up parts, in such blocks."""
    m, device = model.cublaslt, plan.device
    rows, columns, depth = plan.sizes
    block, blocks, parts = cut(plan, most)
    ffma = plan.precision == "fp32"
    rate = (device.lanes / m.ffma if ffma else device.matrix / m.products) * device.clock
    each = block * -(-depth // parts) / rate
    total = -(-blocks * parts // device.multiprocessors) * each
    if misaligned(plan):
        total *= m.misaligned
    if parts > 1:
        total += m.adding + copying(device, 4 * rows * columns * (parts + 1), model)
    return total


def misaligned(plan: Tiling) -> bool:
    """Whether a matrix for Tensor Cores has rows in memory that are no whole vectors."""
    rows, columns, depth = plan.sizes
    in_order = (rows, columns) if plan.gradient else (depth, rows)
    several = plan.precision != "fp32" and 1 not in plan.sizes
    return several and any(n * ITEMSIZE[plan.dtype] % VECTOR for n in in_order)


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time, in the better blocks."""
    m = model.cublaslt
    rows, columns, depth = plan.sizes
    operands, result = depth * (rows + columns), rows * columns
    size = operands * ITEMSIZE[plan.dtype] + result * ITEMSIZE[plan.out_dtype]
    arrays = m.arrays * copying(plan.device, size, model)
    if misaligned(plan):
        arrays *= m.misaligned_arrays
    least = min(products(plan, most, model) for most in SIDES)
    return model.device.launch + m.start + overlapped(3, least, arrays)


def finishing(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds of a pass that reads and writes the result behind the product."""
    rows, columns, _ = plan.sizes
    size = 2 * rows * columns * ITEMSIZE[plan.out_dtype]
    return model.device.launch + copying(plan.device, size, model)
