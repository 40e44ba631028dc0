"""How long the main kernel of Γ on Tensor Cores takes: fitted to an H100."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from winolab.device import Device
from winolab.gpu.families.gamma_wgmma.boxes import SLOT
from winolab.gpu.families.gamma_wgmma.config import (
    BOX_TILES,
    EXCHANGED,
    KC,
    PARTS,
    UNIT,
    Shape,
)
from winolab.gpu.families.gamma_wgmma.geometry import cluster_slots
from winolab.gpu.families.gamma_wgmma.input import padded_size
from winolab.gpu.families.gamma_wgmma.tiles import BM, TEN, TILE_STATES, block_outputs, block_tiles
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import ITEMSIZE, Request

OUTPUTS = BM * 384  # of an item of Γ8(6,3): 64 channels × 64 tiles × 6


@dataclass(frozen=True)
class Cycles:
    """What takes a block's time, in cycles.

    A stage of 16 channels takes as long as the longest of three: ``fixed`` and, with three filter
    rows, ``products``, or ``few_fixed`` and ``few`` with two filters in registers and others on
    their way through shared memory, which are ``four`` times that where filters of four states
    serve twice the tiles, and up to ``far`` longer, or ``ahead`` with filters on their way, the
    larger the transformed filter is against L2; more than three rows of filters that are not on
    their way take ``bare`` times that; ``transforms`` of 96 tiles of eight states; ``box``, times
    the bulk tensor copies that it needs. One of a filter's last rows takes ``rested`` times what
    its rows say, all stages of blocks of more than 32 tile columns ``wide`` times, of those that
    share sums ``shared`` times, with more than three filter rows ``shared_long`` times. An item
    takes ``exchanged`` besides for OUTPUTS of them where consumers store pairs and ``asked`` more
    where some are not there, ``outputs`` otherwise, and ``cluster`` for every block that shares
    its sums.
    """

    products: float
    fixed: float
    few: float
    few_fixed: float
    four: float
    far: float
    ahead: float
    transforms: float
    box: float
    bare: float
    rested: float
    wide: float
    shared: float
    shared_long: float
    exchanged: float
    asked: float
    outputs: float
    cluster: float


@dataclass(frozen=True)
class TenStates:
    """What ten states' ``products`` and ``transforms`` take over what they would by their number,
    and items; ``scattered`` as of TilesLeft; ``narrow`` as NARROW.
    """

    products: float
    transforms: float
    item: float
    scattered: float
    narrow: float


@dataclass(frozen=True)
class TilesLeft:
    """``products``, ``fixed``, ``four`` and ``far`` of split products with V as wgmma's A.

    A bulk copy of a state's filters takes ``copy``, in the way of the boxes. Stages take
    ``scattered`` times as long where boxes have a tile of every image, items of pairs ``pair``
    longer.
    """

    products: float
    fixed: float
    four: float
    far: float
    copy: float
    scattered: float
    pair: float


# By parts. Fitted to 2,200 times of 98 layers' plans, ``asked`` to 17 later, rms 6 %. What is said
# of split products here and below was fitted once more, from there, to 561 times of 139 layers'
# plans, to what the plans that it picks take: 0.5 % above the fastest measured; rms 5 %.
BOXED = {
    1: Cycles(
        products=1657,
        fixed=403,
        few=0,
        few_fixed=0,
        four=0.922,
        far=0.22,
        ahead=0,
        transforms=1846,
        box=122,
        bare=1,
        rested=0,
        wide=1.26,
        shared=1.21,
        shared_long=1.126,
        exchanged=4200,
        asked=150,
        outputs=7483,
        cluster=3566,
    ),
    2: Cycles(
        products=4285,
        fixed=136,
        few=3079,
        few_fixed=1701,
        four=0.861,
        far=0.358,
        ahead=0.061,
        transforms=3495,
        box=112,
        bare=1.122,
        rested=1.116,
        wide=1.46,
        shared=1.09,
        shared_long=1.116,
        exchanged=5567,
        asked=0,
        outputs=8691,
        cluster=3969,
    ),
}
TILES_LEFT = TilesLeft(
    products=3750, fixed=279, four=0.892, far=0.116, copy=99, scattered=1.073, pair=283
)
# Fitted to 33 times of 18 layers, rms 4 %.
TEN_STATES = TenStates(products=1.176, transforms=0.853, item=1.404, scattered=1.034, narrow=0.923)
LAUNCH_SECONDS, FILTER_RATE = 3e-6, 2e12  # fitted to an H100; the latter in bytes a second
BANDWIDTH = 2.8e12  # bytes a second, of an H100
# Of split products: of a stage's time with a third stage of V, by states; of a block's with fewer
# outputs in its filters, if it had none.
THIRD, NARROW = {4: 0.981, 6: 0.949, 8: 0.962}, 0.51
FOLDED = 1.013  # of a stage's whose sums leave the Tensor Core twice
# Of a stage's by filter rows where batches are packed: 41 times of 15 layers. What they take the
# place of are rows of zeros, with which products and other stages take 2 to 5 % less than said.
PACKED = {2: 1.06, 3: 1.02}
# Of a stage's of two filter rows: with six states in boxes of so many tiles or more; in blocks of
# eight rows with six states or packed images. 126 times of 18 cases of 2 × 2: what is picked took
# 1.8 % more than the fastest without them, 0.9 with.
LONG, LONG_BOXES, EIGHT_ROWS = 8, 0.95, 1.025
# Of multicast pairs, by states, less what the filters that both need would take from L2.
MULTICAST, FETCHED, MOST_FETCHED = {6: 1.02, 8: 1.088}, 0.212, 0.35
# Of five rows of filters that are not on their way, and of what L2 brings of them.
FIVE_BARE, FIVE_FAR = 0.79, 1.5
STAGE_ROWS, STAGE_TILES = 3, 96  # of the stages that were fitted
STAGE_STATES = STAGE_TILES * 8
STAGE_NORM, CALL_NORM = 6, 4  # exponents of the norms that stand for the longest
# Where x is copied by elements: of a stage of three filter rows and 96 tiles, of an item, of a
# cluster's block of an item and a stage, on layers with odd channels (split products: 16 times of
# eight layers, rms 16 %).
STAGE, ITEM = {1: 5900, 2: 9400}, {1: 6700, 2: 13_200}
BLOCK_SHARE, SHARED_STAGE = 1 / 8, 1.1


def seconds(plan: Any) -> float:
    """Seconds of a group's main kernel: rounds of work tiles on all that run at once."""
    v = plan.config
    stage, item = _boxed(plan) if v.run else _by_elements(plan)
    cycles = -(-plan.steps // v.split_k) * stage + item
    computed = -(-plan.work_tiles // plan.slots) * cycles * _narrow(plan) / plan.device.clock
    return _longest(CALL_NORM, computed, _moved(plan))


def _narrow(plan: Any) -> float:
    """The mean of blocks' times over those that have all outputs; one round is as long as these."""
    if not plan.config.narrow or plan.work_tiles <= plan.slots:
        return 1.0
    least = TEN_STATES.narrow if plan.tile.alpha == TEN else NARROW
    last = least + (1 - least) * plan.config.narrow / plan.block
    return (plan.blocks_m - 1 + last) / plan.blocks_m


def _longest(exponent: int, *times: float) -> float:
    """The longest of times that run side by side, more where others are nearly as long."""
    return sum(t**exponent for t in times) ** (1 / exponent)


def moving(device: Device, size: float) -> float:
    """Seconds in which memory reads or writes so many bytes."""
    return size / (BANDWIDTH * device.memory_rate)


def _moved(plan: Any) -> float:
    """Seconds of the memory: the rows of x that blocks read, and y."""
    c, v = plan.correlation, plan.config
    x = c.batch * math.prod(c.input) * c.channels * plan.size * (v.rows + v.share - 1) / v.rows
    y = c.batch * math.prod(c.output) * c.out_channels * ITEMSIZE[plan.out_dtype]
    return moving(plan.device, x + y)


def _boxed(plan: Any) -> tuple[float, float]:
    """Cycles of a stage and of an item."""
    v, c, tile = plan.config, BOXED[plan.parts], plan.tile
    t = TILES_LEFT
    boxes = c.box * v.copies(tile, plan.size)
    if v.u_ring:
        fixed, row, four, far, bare = t.fixed, t.products, t.four, t.far, 1.0
        boxes += t.copy * tile.alpha / v.multicast
    else:
        fixed, row = (c.few_fixed, c.few) if v.ring == 2 and v.u_ahead else (c.fixed, c.products)
        four, far = c.four, c.ahead if v.u_ahead else c.far
        bare = c.bare if v.share > STAGE_ROWS and not v.u_ahead else 1.0
    row *= (four if tile.alpha == 4 else 1) / STAGE_ROWS
    row *= tile.alpha * block_tiles(tile.alpha) / TILE_STATES * plan.block / BM
    share_of_l2 = plan.transformed / (plan.transformed + plan.device.l2)
    row *= 1 + far * share_of_l2
    row *= bare
    transforms = c.transforms * v.slots(tile) * SLOT * tile.alpha / STAGE_STATES
    ten = TEN_STATES if tile.alpha == TEN else None
    if ten:
        row *= ten.products
        transforms *= ten.transforms

    def of_rows(rows: int) -> float:
        return _longest(STAGE_NORM, fixed + row * rows, transforms, boxes)

    stage = of_rows(v.share)
    if v.rest:  # of a filter's last rows
        last = v.share / plan.outer[1]
        stage = (1 - last) * stage + last * c.rested * of_rows(v.rest)
    outputs = plan.block * v.rows * v.columns(tile) * tile.n / OUTPUTS
    item = c.outputs * outputs
    if v.finish(plan.parts) == EXCHANGED and v.yvec > 1:
        item = (c.exchanged + (0 if v.whole else c.asked)) * outputs * (ten.item if ten else 1)
    if v.columns(tile) > SLOT:
        stage *= c.wide
    if plan.parts == 2 and v.v_stages > 2:
        stage *= THIRD[tile.alpha]
    if v.fold:
        stage *= FOLDED
    if plan.parts == 2 and v.packed:
        stage *= PACKED.get(v.share, 1.0)
    if plan.parts == 2 and v.share == 2:
        if tile.alpha == 6 and v.run >= LONG:
            stage *= LONG_BOXES
        if v.rows == 8 and (tile.alpha == 6 or v.packed):
            stage *= EIGHT_ROWS
    if v.u_ring and v.multicast == 1 and v.images == BOX_TILES:
        stage *= ten.scattered if ten else t.scattered
    if plan.parts == 2 and v.share > 4 and not v.u_ahead:
        stage *= FIVE_BARE + FIVE_FAR * min(share_of_l2, MOST_FETCHED)
    if v.multicast > 1:
        item += t.pair
        stage *= MULTICAST[tile.alpha] - FETCHED * min(share_of_l2, MOST_FETCHED)
    if v.split_k > 1:
        longer = c.shared if v.share <= STAGE_ROWS else c.shared_long
        return stage * longer, item + c.cluster * v.split_k * outputs
    return stage, item


def _by_elements(plan: Any) -> tuple[float, float]:
    """Cycles of a stage and of an item."""
    v = plan.config
    return _copied(plan.parts, v.share, v.stage_tiles(plan.tile), v.split_k)


def _copied(parts: int, share: int, tiles: int, split_k: int) -> tuple[float, float]:
    """The same, of stages of so many filter rows and tiles."""
    longest = max(share / STAGE_ROWS, tiles / STAGE_TILES)
    stage, item = longest * STAGE[parts], ITEM[parts]
    if split_k > 1:
        return stage * SHARED_STAGE, item * (1 + BLOCK_SHARE * split_k)
    return stage, item


def least_seconds(shape: Shape, c: Correlation, request: Request) -> float:
    """Seconds that every config of the shape takes at least; the same model, of its best case."""
    tile, device, rows, split_k = shape.tile, request.device, shape.fixed["rows"], shape.split_k
    parts, size = PARTS[request.precision], ITEMSIZE[request.dtype]
    share, run, block = shape.fixed["share"], shape.fetched["run"], block_outputs(tile.alpha)
    columns = block_tiles(tile.alpha) // rows
    steps = c.filter[0] * -(-c.filter[1] // share) * -(-c.filter[2] // tile.r)
    steps *= -(-c.channels // KC)
    width = -(-c.output[2] // (tile.n * max(1, run))) * max(1, run)
    blocks_m, across = -(-c.out_channels // block), c.batch * c.output[0] * width
    if shape.fetched["packed"]:
        blocks = -(-across * c.output[1] // (columns * rows))
    else:
        blocks = -(-across // columns) * -(-c.output[1] // rows)
    items, slots = blocks_m * blocks, cluster_slots(device, split_k)
    outputs = block * rows * columns * tile.n / OUTPUTS
    slow = -(-(rows + share - 1) * columns // SLOT)
    if run:
        stage, item = _least_boxed(shape, c, parts, columns, slow, outputs)
    else:
        stage, item = _copied(parts, share, (rows + share - 1) * columns, split_k)
    least = 1.0
    if parts == 2 and items > slots and (left := -(-c.out_channels // UNIT) * UNIT % block):
        narrow = TEN_STATES.narrow if tile.alpha == TEN else NARROW
        least = (blocks_m - 1 + narrow + (1 - narrow) * left / block) / blocks_m
    cycles = -(-steps // split_k) * stage + item
    computed = -(-items // slots) * cycles * least / device.clock
    x = c.batch * math.prod(c.input) * c.channels * size * (rows + share - 1) / rows
    y = c.batch * math.prod(c.output) * c.out_channels * ITEMSIZE[request.stored]
    states = math.prod(c.filter[:2]) * -(-c.filter[2] // tile.r) * -(-c.channels // KC) * tile.alpha
    transformed = states * parts * c.out_channels * KC * 2
    padded = padded_size(c, size) if shape.fetched["padded"] else 0
    seconds = _longest(CALL_NORM, computed, moving(device, x + y))
    return of_call(device, c.groups, seconds, transformed, parts, padded)


def of_call(
    device: Device, groups: int, seconds: float, transformed: int, parts: int, padded: int
) -> float:
    """Seconds of a call whose main kernel takes so many a group; bytes of a group's transformed
    filter, of the copy of x."""
    seconds += transformed / (FILTER_RATE * device.memory_rate) + 2 * LAUNCH_SECONDS
    passes = 3 * LAUNCH_SECONDS if parts == 2 else 0.0  # of the scales
    if padded:
        passes += LAUNCH_SECONDS + moving(device, 2 * padded)
    return groups * seconds + passes


def _least_boxed(
    shape: Shape, c: Correlation, parts: int, columns: int, slots: int, outputs: float
) -> tuple[float, float]:
    """Cycles of a stage and of an item, of whichever filters wait where."""
    tile, share, split_k, by = shape.tile, shape.fixed["share"], shape.split_k, BOXED[parts]
    ten = TEN_STATES if tile.alpha == TEN else None
    ways = [(by.fixed, by.products, by.four)]
    if parts == 2:
        ways += [(by.few_fixed, by.few, by.four)] * (share > STAGE_ROWS)
        if split_k == 1:
            ways.append((TILES_LEFT.fixed, TILES_LEFT.products, TILES_LEFT.four))
    rows = c.filter[1] / -(-c.filter[1] // share)  # of a stage, on average
    work = tile.alpha * block_tiles(tile.alpha) / TILE_STATES * block_outputs(tile.alpha) / BM
    work *= (ten.products if ten else 1) / STAGE_ROWS * rows
    products = min(
        fixed + row * work * (four if tile.alpha == 4 else 1) for fixed, row, four in ways
    )
    transforms = by.transforms * slots * SLOT * tile.alpha / STAGE_STATES
    stage = _longest(STAGE_NORM, products, transforms * (ten.transforms if ten else 1))
    stage *= by.wide if columns > SLOT else 1
    if parts == 2:
        stage *= LONG_BOXES if tile.alpha == 6 and share == 2 else 1
        stage *= FIVE_BARE if share > 4 else 1
    if split_k > 1:
        stage *= by.shared if share <= STAGE_ROWS else by.shared_long
        return stage, (by.outputs + by.cluster * split_k) * outputs
    if parts == 2:
        stage *= THIRD.get(tile.alpha, 1.0)
        if tile.alpha in MULTICAST:
            stage *= min(1.0, MULTICAST[tile.alpha] - FETCHED * MOST_FETCHED)
    return stage, min(by.exchanged, by.outputs) * outputs
