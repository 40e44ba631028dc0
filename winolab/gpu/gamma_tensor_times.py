"""How long the main kernel of Γ on Tensor Cores takes: fitted to an H100."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from winolab.gpu.gamma_tensor_blocks import BN

OUTPUTS = BN * 384  # of an item of Γ8(6,3): 64 channels × 64 tiles × 6


@dataclass(frozen=True)
class Cycles:
    """What takes a block's time, in cycles.

    A stage of 16 channels takes as long as the longest of three: ``products`` with three filter
    rows, ``bare`` where no filters wait in shared memory, and ``fixed`` besides; ``transforms`` of
    96 tiles of eight states; ``box``, times the bulk tensor copies that it needs. An item takes
    ``item`` besides, ``outputs`` for OUTPUTS of them and ``cluster`` for every block that shares
    its sums; stages of those take ``shared`` times as long.
    """

    products: float
    bare: float
    fixed: float
    transforms: float
    box: float
    item: float
    outputs: float
    cluster: float
    shared: float


# By parts. 527 times of 25 layers' plans, rms 7 %; of the plans taken by them 1.3 % more than the
# fastest.
BOXED = {
    1: Cycles(1296, 1296, 1008, 1870, 52, 6045, 359, 2819, 1.19),
    2: Cycles(4650, 5340, 0, 3500, 78, 0, 9450, 2796, 1.11),
}
STAGE_ROWS, STAGE_TILES = 3, 96  # of the stages that were fitted
STAGE_STATES = STAGE_TILES * 8
SMOOTH = 6  # exponent of the norm that stands for the longest
# Where x is copied by elements: of a stage of three filter rows and 96 tiles, of an item, of a
# cluster's block of an item and a stage, on layers with odd channels.
STAGE, ITEM = {1: 5900, 2: 18_600}, {1: 6700, 2: 14_000}
BLOCK_SHARE, SHARED_STAGE = 1 / 8, 1.1


def seconds(plan: Any) -> float:
    """Of a group's main kernel: rounds of items on as many multiprocessors as run at once."""
    v = plan.variant
    stage, item = _boxed(plan) if v.run else _by_elements(plan)
    cycles = -(-plan.steps // v.split) * stage + item
    return -(-plan.items // plan.slots) * cycles / plan.device.clock


def _boxed(plan: Any) -> tuple[float, float]:
    """Cycles of a stage and of an item."""
    v, c, tile = plan.variant, BOXED[plan.parts], plan.tile
    products = (c.products if v.u_ahead else c.bare) * v.share / STAGE_ROWS + c.fixed
    transforms = c.transforms * v.stage_tiles(tile) * tile.alpha / STAGE_STATES
    boxes = c.box * v.boxes(tile)
    stage = sum(t**SMOOTH for t in (products, transforms, boxes)) ** (1 / SMOOTH)
    share = BN * v.rows * v.columns(tile) * tile.n / OUTPUTS
    item = c.item + c.outputs * share
    if v.split > 1:
        return stage * c.shared, item + c.cluster * v.split * share
    return stage, item


def _by_elements(plan: Any) -> tuple[float, float]:
    """Cycles of a stage and of an item."""
    v = plan.variant
    longest = max(v.share / STAGE_ROWS, v.stage_tiles(plan.tile) / STAGE_TILES)
    stage, item = longest * STAGE[plan.parts], ITEM[plan.parts]
    if v.split > 1:
        return stage * SHARED_STAGE, item * (1 + BLOCK_SHARE * v.split)
    return stage, item
