"""How long Γ on Tensor Cores takes: what a stage asks of a multiprocessor, work tile by work tile.

A stage of 16 channels takes about as long as the slowest of what goes on at once in it: products,
traffic through shared memory, filters from L2, transforms, copies of x. Rates are GammaWgmma's.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from winolab.algorithm import Tile
from winolab.device import Device
from winolab.gpu.families.clusters import clusters
from winolab.gpu.families.gamma.config import KC, PARTS
from winolab.gpu.families.gamma.cost import of_call
from winolab.gpu.families.gamma.tiles import WGMMA_TILES, block_outputs, block_tiles
from winolab.gpu.families.gamma_wgmma.boxes import PIXEL, SLOT
from winolab.gpu.families.gamma_wgmma.config import (
    UNIT,
    Config,
    Shape,
    Waiting,
)
from winolab.gpu.families.gamma_wgmma.input import padded_size
from winolab.gpu.families.gamma_wgmma.tiling import Tiling
from winolab.gpu.params import SHARED_LINE
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, l2_bytes_a_cycle, overlapped
from winolab.gpu.planner.request import ITEMSIZE, Request
from winolab.ref.arithmetic.split import products

if TYPE_CHECKING:
    from winolab.gpu.planner.device_sections import GammaWgmma

HALF = 2  # bytes of a part


class Stage(NamedTuple):
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
        m, near = model.gamma_wgmma, device.l2 / model.gamma.near
        far = 1 + m.far * transformed / (transformed + near) if self.held else 1
        return m.stage + overlapped(
            model.overlap.stage,
            self.products / device.matrix,
            m.shared * self.shared / SHARED_LINE,
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
    return overlapped(model.overlap.stage, computed, copying(plan.device, _moved(plan), model))


def seconds(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds of a whole call."""
    main, groups = main_seconds(plan, model), plan.correlation.groups
    return of_call(plan.device, groups, main, plan.transformed, plan.parts, plan.padded, model)


def _mean_stage(plan: Tiling, outputs: int, model: DeviceModel) -> float:
    """Cycles of a stage of so many output channels, those of a filter's last rows among them."""
    v, m = plan.config, model.gamma_wgmma
    x = fetched(plan.tile, v.rows, v.share, v.run, v.images, v.packed, plan.size)

    def of_rows(rows: int) -> float:
        made = stage(x, v.waiting, plan.tile, plan.parts, plan.size, rows, outputs, model)
        return made.cycles(plan.device, model, plan.transformed)

    cycles = of_rows(v.share)
    if v.rest:
        cycles += v.share / plan.outer[1] * (m.rest * of_rows(v.rest) - cycles)
    return cycles * (m.wide if x.columns > SLOT else 1)


class Fetched(NamedTuple):
    """What a stage's input takes, wherever filters wait."""

    run: int  # neighbouring tiles of a copy; 0: x is copied by elements
    columns: int  # tile columns of a block
    numbers: int  # transformed
    box_bytes: float
    copies: float


@lru_cache(maxsize=1 << 12)
def fetched(
    tile: Tile,
    rows: int,
    share: int,
    run: int,
    images: int,
    packed: int,
    size: int,
    spread: bool = True,
) -> Fetched:
    """The input of a stage of blocks of so many rows, by boxes of so many tiles and images;
    without ``spread`` at least."""
    v = Config(rows, share, run=run, images=images, packed=packed)
    numbers, columns = v.stage_tiles(tile) * tile.alpha * KC, v.columns(tile)
    if not run:
        return Fetched(run, columns, numbers, 0.0, 0.0)
    boxes, slots = v.boxes(tile, size, spread), v.slots(tile)
    pixels = boxes.count * boxes.pixels * boxes.box_rows * images
    # A box serves several stages of small elements.
    copies = slots * boxes.count * KC * size / PIXEL
    return Fetched(run, columns, numbers, slots * pixels * KC * size, copies)


def stage(
    x: Fetched,
    waiting: Waiting,
    tile: Tile,
    parts: int,
    size: int,
    rows: float,
    outputs: float,
    model: DeviceModel = MODEL,
) -> Stage:
    """A stage of so many filter rows and output channels; elements of x have ``size`` bytes.

    V is written to shared memory and read once, or by every product where it is wgmma's B; filters
    that wait there are, too. Those that are held in registers come past it, but through L1.
    """
    block, numbers, m = block_tiles(tile.alpha), x.numbers, model.gamma_wgmma
    stored = model.gamma.stored  # m.transform is of eight states
    macs = rows * tile.alpha * block * outputs * KC * products(parts)
    # Half of the states each, or all of them for half of the tiles.
    filters = rows * tile.alpha * (block // WGMMA_TILES) * outputs * KC * HALF * parts
    written = numbers * (HALF * parts + size) + x.box_bytes  # and x read
    if waiting.u_ring:
        read = numbers * HALF * parts + macs / WGMMA_TILES * HALF + filters
    else:
        read = macs / min(outputs, WGMMA_TILES) * HALF + filters * (2 if waiting.u_ahead else 1)
    held = not (waiting.u_ring or waiting.u_ahead)
    return Stage(
        macs * (m.held if held and parts > 1 else 1),
        written + read,
        filters / waiting.multicast,
        x.box_bytes,
        numbers * parts * (stored + tile.alpha) / (stored + 8) * (1 if x.run else m.elements),
        x.copies,
        held,
    )


def _work_tile(v: Config, tile: Tile, block: int, model: DeviceModel) -> float:
    """Cycles around a sum: outputs stored, and added to other blocks' where these share it."""
    return block * v.rows * v.columns(tile) * tile.n * _store(v.split_k, model.gamma_wgmma)


def _store(split_k: int, m: GammaWgmma) -> float:
    """Cycles that storing an output takes, which so many blocks share."""
    return m.store + (m.cluster * split_k if split_k > 1 else 0)


def _moved(plan: Tiling) -> float:
    """Bytes of the rows of x that blocks read, and of y."""
    v = plan.config
    return moved(plan.correlation, v.rows, v.share, plan.size, ITEMSIZE[plan.out_dtype])


def moved(c: Correlation, rows: int, share: int, size: int, out_size: int) -> float:
    """Bytes of the rows of x that blocks of so many rows read, and of y."""
    x = c.batch * math.prod(c.input) * c.channels * size * (rows + share - 1) / rows
    return x + c.batch * math.prod(c.output) * c.out_channels * out_size


# Where filters wait at best: of 16 bits, of split products, and of those that share no sums.
BEST = {1: (Waiting(),), 2: (Waiting(), Waiting(u_ahead=1))}
ALONE = {1: BEST[1], 2: (*BEST[2], Waiting(u_ring=1, multicast=2))}


def least_seconds(
    shape: Shape, c: Correlation, request: Request, model: DeviceModel = MODEL
) -> list[float]:
    """Seconds that every config of the shape takes at least, for each of its ``splits``: the same
    model of its best case.

    Cycles are a convex function of what a stage takes: those of a mean stage are no more than the
    mean of stages' cycles.
    """
    tile, device, m = shape.tile, request.device, model.gamma_wgmma
    parts, size = PARTS[request.precision], ITEMSIZE[request.dtype]
    rows, share = shape.fixed["rows"], shape.fixed["share"]
    run, images, packed = (shape.fetched[name] for name in ("run", "images", "packed"))
    x = fetched(tile, rows, share, run, images, packed, size, spread=False)
    block, across = block_outputs(tile.alpha), max(1, run)  # tiles
    kinds = -(-c.filter[1] // share)  # of stages, by filter rows
    pieces = -(-c.filter[2] // tile.r) * -(-c.channels // KC)
    steps = c.filter[0] * kinds * pieces
    columns = c.batch * c.output[0] * -(-c.output[2] // (tile.n * across)) * across
    blocks_m, outputs = -(-c.out_channels // block), float(block)
    if parts == 2:
        outputs = min(block, -(-c.out_channels // UNIT) * UNIT / blocks_m)
    if packed:
        blocks = blocks_m * -(-columns * c.output[1] // (x.columns * rows))
    else:
        blocks = blocks_m * -(-columns // x.columns) * -(-c.output[1] // rows)
    moving = copying(device, moved(c, rows, share, size, ITEMSIZE[request.stored]), model)
    states = math.prod(c.filter[:2]) * pieces * tile.alpha
    transformed = states * parts * c.out_channels * KC * HALF
    padded = padded_size(c, size) if shape.fetched["padded"] else 0
    mean = c.filter[1] / kinds  # rows of a stage
    ways = [
        stage(x, way, tile, parts, size, mean, outputs, model).cycles(device, model)
        * (m.wide if x.columns > SLOT else 1)
        for way in ALONE[parts]
    ]
    stored = block * rows * x.columns * tile.n
    found = []
    for split_k in shape.splits:
        least = min(ways if split_k == 1 else ways[: len(BEST[parts])])
        cycles = -(-steps // split_k) * least + stored * _store(split_k, m)
        computed = -(-blocks // clusters(device, split_k, model)) * cycles / device.clock
        seconds = overlapped(model.overlap.stage, computed, moving)
        found.append(of_call(device, c.groups, seconds, transformed, parts, padded, model))
    return found
