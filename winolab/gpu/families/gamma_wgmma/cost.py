"""How long Γ on Tensor Cores takes: what a stage asks of a multiprocessor, work tile by work tile.

A stage of 16 channels takes about as long as the slowest of what goes on at once in it: products,
traffic through shared memory, filters from L2, transforms, copies of x. Rates are GammaWgmma's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from winolab.algorithm import Tile
from winolab.device import Device
from winolab.gpu.families.gamma.config import KC, PARTS
from winolab.gpu.families.gamma.cost import of_call
from winolab.gpu.families.gamma.tiles import WGMMA_TILES, block_outputs, block_tiles
from winolab.gpu.families.gamma_wgmma.boxes import SLOT
from winolab.gpu.families.gamma_wgmma.config import (
    FAR,
    UNIT,
    Config,
    Shape,
)
from winolab.gpu.families.gamma_wgmma.input import padded_size
from winolab.gpu.families.gamma_wgmma.tiling import Tiling, cluster_slots
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.device_model import (
    MODEL,
    DeviceModel,
    GammaWgmma,
    copying,
    l2_bytes_a_cycle,
    overlapped,
)
from winolab.gpu.planner.request import ITEMSIZE, Request
from winolab.ref.arithmetic.split import products

HALF = 2  # bytes of a part
SHARED_BYTES = 128  # a cycle, that shared memory reads or writes
SHARP = 4  # the exponent of what overlaps, in a stage and in a call


@dataclass(frozen=True)
class Stage:
    """What a stage of KC channels takes a block at least: multiply-adds, bytes, numbers, copies."""

    products: float  # of the Tensor Core; more of them where filters are held in registers
    shared: float  # bytes through shared memory
    filters: float  # bytes from L2
    x: float  # bytes from L2 and memory
    transforms: float  # parts of numbers that producers make
    boxes: float  # bulk tensor copies of x
    held: bool  # whether filters go from L2 to registers

    def cycles(self, device: Device, model: DeviceModel, transformed: int = 0) -> float:
        """A multiprocessor's; ``transformed``: bytes of all filters. Those that are held are the
        farther from where they are read the more of L2 they take."""
        m = model.gamma_wgmma
        far = 1 + m.far * transformed / (transformed + device.l2 / FAR) if self.held else 1
        return m.stage + overlapped(
            SHARP,
            self.products / device.matrix,
            m.shared * self.shared / SHARED_BYTES,
            (far * self.filters + m.x * self.x) / l2_bytes_a_cycle(model),
            m.transform * self.transforms,
            m.box * self.boxes,
        )


def main_seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds of a group's main kernel: rounds of work tiles on what runs at once."""
    v = plan.config
    steps = -(-plan.steps // v.split_k)
    work_tile = _work_tile(v, plan.tile, plan.block, model)
    cycles = steps * _mean_stage(plan, plan.block, model) + work_tile
    if v.narrow and plan.work_tiles > plan.slots:  # else one round is as long as the widest block
        last = steps * _mean_stage(plan, v.narrow, model) + work_tile
        cycles += (last - cycles) / plan.blocks_m
    computed = -(-plan.work_tiles // plan.slots) * cycles / plan.device.clock
    return overlapped(SHARP, computed, copying(plan.device, _moved(plan), model))


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds of a whole call."""
    main, groups = main_seconds(plan, model), plan.correlation.groups
    return of_call(plan.device, groups, main, plan.transformed, plan.parts, plan.padded, model)


def _mean_stage(plan: Tiling, outputs: int, model: DeviceModel) -> float:
    """Cycles of a stage of so many output channels, those of a filter's last rows among them."""
    v, m = plan.config, model.gamma_wgmma

    def of_rows(rows: int) -> float:
        made = stage(v, plan.tile, plan.parts, plan.size, rows, outputs, m)
        return made.cycles(plan.device, model, plan.transformed)

    cycles = of_rows(v.share)
    if v.rest:
        cycles += v.share / plan.outer[1] * (m.rest * of_rows(v.rest) - cycles)
    return cycles * (m.wide if v.columns(plan.tile) > SLOT else 1)


def stage(
    v: Config, tile: Tile, parts: int, size: int, rows: float, outputs: float, m: GammaWgmma
) -> Stage:
    """A stage of so many filter rows and output channels; elements of x have ``size`` bytes.

    V is written to shared memory and read once, or by every product where it is wgmma's B; filters
    that wait there are, too. Those that are held in registers come past it, but through L1.
    """
    block = block_tiles(tile.alpha)
    numbers = v.stage_tiles(tile) * tile.alpha * KC
    macs = rows * tile.alpha * block * outputs * KC * products(parts)
    # Half of the states each, or all of them for half of the tiles.
    filters = rows * tile.alpha * (block // WGMMA_TILES) * outputs * KC * HALF * parts
    written = numbers * (HALF * parts + size) + v.box_bytes(tile, size)  # and x read
    if v.u_ring:
        read = numbers * HALF * parts + macs / WGMMA_TILES * HALF + filters
    else:
        read = macs / min(outputs, WGMMA_TILES) * HALF + filters * (2 if v.u_ahead else 1)
    return Stage(
        macs * (1 if parts == 1 or v.u_ring or v.u_ahead else m.held),
        written + read,
        filters / v.multicast,
        v.box_bytes(tile, size),
        numbers * parts * (12 + tile.alpha) / 20 * (1 if v.run else m.elements),
        v.copies(tile, size),
        not (v.u_ring or v.u_ahead),
    )


def _work_tile(v: Config, tile: Tile, block: int, model: DeviceModel) -> float:
    """Cycles around a sum: outputs stored, and added to other blocks' where these share it."""
    m, outputs = model.gamma_wgmma, block * v.rows * v.columns(tile) * tile.n
    return outputs * (m.store + (m.cluster * v.split_k if v.split_k > 1 else 0))


def _moved(plan: Tiling) -> float:
    """Bytes of the rows of x that blocks read, and of y."""
    v = plan.config
    return moved(plan.correlation, v.rows, v.share, plan.size, ITEMSIZE[plan.out_dtype])


def moved(c: Correlation, rows: int, share: int, size: int, out_size: int) -> float:
    """Bytes of the rows of x that blocks of so many rows read, and of y."""
    x = c.batch * math.prod(c.input) * c.channels * size * (rows + share - 1) / rows
    return x + c.batch * math.prod(c.output) * c.out_channels * out_size


def _least_stage(
    tile: Tile,
    blocked: tuple[int, int, int, int, int, int, bool],
    parts: int,
    size: int,
    rows: float,
    outputs: float,
    device: Device,
    model: DeviceModel = MODEL,
) -> float:
    """Cycles of a stage of so many filter rows and output channels at least, wherever filters wait;
    ``blocked``: a block's rows, share, run, images, packed, padded, and whether it sums alone.
    """
    *policies, alone = blocked
    names = ("rows", "share", "run", "images", "packed", "padded")
    v = Config(**dict(zip(names, policies, strict=True)))
    ways = [v]
    if parts == 2:
        ways += [replace(v, u_ahead=1), replace(v, u_ring=1, multicast=2)][: 1 + alone]
    least = min(
        stage(way, tile, parts, size, rows, outputs, model.gamma_wgmma).cycles(device, model)
        for way in ways
    )
    return least * (model.gamma_wgmma.wide if v.columns(tile) > SLOT else 1)


_least_known = lru_cache(maxsize=1 << 14)(_least_stage)  # of the kept model, which hashes slowly


def least_seconds(
    shape: Shape, c: Correlation, request: Request, model: DeviceModel = MODEL
) -> float:
    """Seconds that every config of the shape takes at least: the same model of its best case.

    Cycles are a convex function of what a stage takes: those of a mean stage are no more than the
    mean of stages' cycles.
    """
    tile, device, split_k = shape.tile, request.device, shape.split_k
    parts, size = PARTS[request.precision], ITEMSIZE[request.dtype]
    v = Config(**shape.fixed, **shape.fetched, split_k=split_k)
    columns, block = v.columns(tile), block_outputs(tile.alpha)
    kinds = -(-c.filter[1] // v.share)  # of stages, by filter rows
    steps = c.filter[0] * kinds * -(-c.filter[2] // tile.r) * -(-c.channels // KC)
    width = -(-c.output[2] // (tile.n * max(1, v.run))) * max(1, v.run)
    blocks_m, across = -(-c.out_channels // block), c.batch * c.output[0] * width
    if v.packed:
        blocks = -(-across * c.output[1] // (columns * v.rows))
    else:
        blocks = -(-across // columns) * -(-c.output[1] // v.rows)
    outputs = block
    if parts == 2:
        outputs = min(block, -(-c.out_channels // UNIT) * UNIT / blocks_m)
    blocked = v.rows, v.share, v.run, v.images, v.packed, v.padded, split_k == 1
    what = tile, blocked, parts, size, c.filter[1] / kinds, outputs, device
    least = _least_known(*what) if model is MODEL else _least_stage(*what, model)
    cycles = -(-steps // split_k) * least + _work_tile(v, tile, block, model)
    computed = -(-blocks_m * blocks // cluster_slots(device, split_k)) * cycles / device.clock
    moving = copying(device, moved(c, v.rows, v.share, size, ITEMSIZE[request.stored]), model)
    states = math.prod(c.filter[:2]) * -(-c.filter[2] // tile.r) * -(-c.channels // KC) * tile.alpha
    transformed = states * parts * c.out_channels * KC * HALF
    padded = padded_size(c, size) if v.padded else 0
    seconds = overlapped(SHARP, computed, moving)
    return of_call(device, c.groups, seconds, transformed, parts, padded, model)
