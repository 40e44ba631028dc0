"""What the implicit GEMM takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from winolab.gpu.families import wgrad
from winolab.gpu.families.implicit_gemm.config import ROLES, SLICE, sliced
from winolab.gpu.families.implicit_gemm.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, from_l2, overlapped
from winolab.gpu.planner.request import ITEMSIZE
from winolab.ref.arithmetic import split

if TYPE_CHECKING:
    from winolab.gpu.planner.device_sections import ImplicitGemm, ImplicitGemmWgmma

# Products of parts that make one, by precision.
PRODUCTS = {"fp16": 1, "bf16": 1, "fp32_split": split.products(2), "fp32": 1}
# Products of a multiprocessor's FP16 products; of FFMA, of its lanes.
RATES = {"fp16": 1.0, "bf16": 1.0, "fp32_split": 0.5 / PRODUCTS["fp32_split"]}


def slots(plan: Tiling) -> int:
    """Blocks that the GPU holds."""
    return plan.config.blocks * plan.device.multiprocessors


def resident(plan: Tiling) -> int:
    """Blocks that a multiprocessor has at once: as many as it holds, or as there are."""
    return min(plan.config.blocks, -(-plan.grid // plan.device.multiprocessors))


def constants(plan: Tiling, model: DeviceModel = MODEL) -> ImplicitGemm | ImplicitGemmWgmma:
    """The constants of the main kernel."""
    return model.implicit_gemm_wgmma if plan.config.producers else model.implicit_gemm


def step(plan: Tiling, model: DeviceModel = MODEL, blocks: int = 0) -> float:
    """Seconds of a step of a block, of so many that a multiprocessor has at once: by default of as
    many as there are."""
    blocks = blocks or resident(plan)
    if plan.config.producers:
        return _wgmma_step(plan, model, blocks)
    v, device, m = plan.config, plan.device, model.implicit_gemm
    rate = device.lanes * m.ffma
    if plan.precision != "fp32":
        share = model.gamma_mma.hopper if device.compute_capability >= (9, 0) else 1.0
        rate = device.matrix * share * RATES[plan.precision]
    work = v.block_rows * v.block_columns * v.depth
    if plan.merged > 1 and plan.precision != "fp32" and not plan.gradient:  # tiles that a group has
        work *= max(SLICE, max(plan.correlation.channels, 1)) / plan.patch_channels
    products = m.products * blocks * work / (rate * device.clock)
    if plan.precision == "fp32_split":  # each warp splits what it multiplies
        split = v.block_rows * v.warp_columns + v.block_columns * v.warp_rows
        products += m.operand * blocks * split * v.depth / (device.lanes * device.clock)
    if plan.correlation.rotated:
        products *= m.across
    copied, copies = _copied(plan, model, blocks)
    started = m.vector * copies / device.clock
    return overlapped(model.overlap.call, products, copied, started, m.step)


def _copied(plan: Tiling, model: DeviceModel, blocks: int) -> tuple[float, float]:
    """Seconds that L2 takes for a step of all blocks; copies of a multiprocessor's threads."""
    v, device, (of_x, of_w) = plan.config, plan.device, plan.vectors
    rows, columns = v.block_rows, v.block_columns
    size = blocks * v.depth * ITEMSIZE[plan.dtype] * (rows + columns) * device.multiprocessors
    copies = columns / of_x + rows / of_w if plan.gradient else rows / of_x + columns / of_w
    return from_l2(device, size, model), blocks * v.depth * copies


def _wgmma_step(plan: Tiling, model: DeviceModel, blocks: int) -> float:
    """The same where producers copy and warpgroups multiply."""
    v, device, c, m = plan.config, plan.device, plan.correlation, model.implicit_gemm_wgmma
    columns, _ = sliced(v, ROLES[plan.direction], plan.merged, c.channels, c.out_channels)
    work = blocks * v.block_rows * columns * v.depth
    products = m.products * work / (device.matrix * device.clock)
    copied, copies = _copied(plan, model, blocks)
    started = m.vector * copies / device.clock
    moved = m.l2 * copied
    return overlapped(model.overlap.call, products, moved, started, m.step)


def arrays(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds that memory takes for x, w and y."""
    c = plan.correlation
    y = c.batch * c.groups * c.out_channels * math.prod(c.output)
    w = c.groups * c.channels * c.out_channels * math.prod(c.filter)
    ends = (plan.dtype, plan.dtype, plan.out_dtype)
    sizes = (plan.met, y, w) if plan.gradient else (plan.met, w, y)
    return copying(
        plan.device, sum(n * ITEMSIZE[t] for n, t in zip(sizes, ends, strict=True)), model
    )


def filling(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds of the launches that copy x and the filter."""
    if not plan.config.fill:
        return 0.0
    launches = sum(size > 0 for size in plan.filled)
    return launches * model.device.launch + copying(plan.device, 2 * plan.filled[0], model)


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Predicted time of a call, of a gradient in as many segments as the plan has."""
    cut = plan.gradient or plan.segmented
    return _segments_seconds(plan, model) if cut else _phases_seconds(plan, model)


def timing_of(plan: Tiling, model: DeviceModel = MODEL, blocks: int = 0) -> wgrad.Timing:
    """What the main kernel takes, by segments of the sum; ``blocks`` as of a step."""
    v, m = plan.config, constants(plan, model)
    return wgrad.Timing(
        plan.tiles_of_phase,
        slots(plan),
        step(plan, model, blocks) / v.depth,
        m.work_tile * v.block_rows * v.block_columns / (128 * 128),
        v.depth,
        filled=True,
        gather=model.implicit_gemm.gather,
        device=plan.device,
        model=model,
    )


def _segments_seconds(plan: Tiling, model: DeviceModel) -> float:
    """Seconds of a gradient, or of a correlation whose sum is cut, with what adds segments up."""
    main = timing_of(plan, model).whole(plan.summed, plan.segments, 4 * plan.result.weights)
    main += constants(plan, model).start
    if plan.gradient and plan.merged > 1:
        main += model.implicit_gemm.merged
    return max(main, arrays(plan, model)) + filling(plan, model)


def _phases_seconds(plan: Tiling, model: DeviceModel) -> float:
    """Seconds of all phases, those of the most taps first."""
    v, m = plan.config, constants(plan, model)
    channels, each, at, total = plan.patch_channels, step(plan, model), 0, 0.0
    phases = [(1, 1)]
    for axis in plan.axes:
        phases = [(t * n, k * i) for t, k in phases for n, i in axis.of_phases]
    for taps, count in phases:
        end = at + count * plan.tiles_of_phase
        waves = -(-end // slots(plan)) - -(-at // slots(plan))
        work_tile = m.work_tile * v.block_rows * v.block_columns / (128 * 128)
        total += waves * (-(-taps * channels // v.depth) * each + work_tile)
        at = end
    begin = model.device.launch + m.start
    return begin + overlapped(model.overlap.call, total, arrays(plan, model)) + filling(plan, model)
