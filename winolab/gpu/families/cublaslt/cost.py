"""What a product of cuBLASLt takes: blocks of products beside a copy of the matrices."""

from __future__ import annotations

import math
from itertools import product

from winolab.gpu.families.cublaslt.tiling import Tiling
from winolab.gpu.params import VECTOR
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, of_passes, overlapped
from winolab.gpu.planner.request import ITEMSIZE

SIDES = 32, 64, 128  # of a block's results; the first on FFMA units alone
LEAST = 64 * 64  # results of a block


Block = tuple[int, int]  # rows and columns of results


def blocks(plan: Tiling) -> list[Block]:
    """Those that a product is thought to be cut into."""
    sides = SIDES if plan.precision == "fp32" else SIDES[1:]
    return [of for of in product(sides, sides) if math.prod(of) >= LEAST]


def cut(plan: Tiling, block: Block, model: DeviceModel = MODEL) -> tuple[int, int]:
    """How many such blocks the result has, and parts of each sum: as many as fill the GPU and have
    room."""
    rows, columns, depth = plan.each
    count = plan.images * -(-rows // block[0]) * -(-columns // block[1])
    most = depth // int(model.cublaslt.part)
    room = plan.of_library // (4 * plan.images * rows * columns)
    return count, max(1, min(plan.device.multiprocessors // count, most, room))


def products(plan: Tiling, block: Block, model: DeviceModel) -> float:
    """Seconds of the products, and of adding up parts, in such blocks."""
    m, device = model.cublaslt, plan.device
    rows, columns, depth = plan.each
    count, parts = cut(plan, block, model)
    if 1 in (rows, columns) and plan.images == 1:  # a matrix by a vector, which fills no block
        block = min(block[0], rows), min(block[1], columns)
    if plan.precision == "fp32":  # operands come from shared memory beside products
        each = (math.prod(block) + m.operand * sum(block)) / device.lanes
    else:
        each = m.products * math.prod(block) / device.matrix
    each *= -(-depth // parts) / device.clock
    total = -(-count * parts // device.multiprocessors) * each
    if misaligned(plan):
        total *= m.misaligned
    if parts > 1:
        adding = m.adding_gradient if plan.gradient else m.adding
        total += adding + copying(device, 4 * plan.images * rows * columns * (parts + 1), model)
    return total


def misaligned(plan: Tiling) -> bool:
    """Whether a matrix for Tensor Cores has rows in memory that are no whole vectors."""
    rows, columns, depth = plan.sizes
    in_order = (rows, columns) if plan.gradient else (depth, rows)
    if plan.planes:  # maps' rows are pixels, of half a vector or more; w's are input channels
        in_order = () if plan.gradient else (plan.problem.in_channels,)
    several = plan.precision != "fp32" and 1 not in plan.sizes
    return several and any(n * ITEMSIZE[plan.dtype] % VECTOR for n in in_order)


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time, in the better blocks."""
    m = model.cublaslt
    rows, columns, depth = plan.sizes
    operands, result = depth * (rows + columns), rows * columns
    written = result * ITEMSIZE[plan.out_dtype]
    size = operands * ITEMSIZE[plan.dtype] + (plan.parts_size or written)
    arrays = m.arrays * copying(plan.device, size, model)
    if misaligned(plan):
        arrays *= m.misaligned_arrays
    least, block = min((products(plan, block, model), block) for block in blocks(plan))
    passes = -(-math.prod(cut(plan, block, model)) // plan.device.multiprocessors)
    sharp = of_passes(passes, model)
    begun = m.start_ffma if plan.precision == "fp32" else m.start
    total = model.device.launch + begun + overlapped(sharp, least, arrays)
    if plan.parts_size:
        total += model.device.launch + copying(plan.device, plan.parts_size + written, model)
    return total
