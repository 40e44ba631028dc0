"""How long the main kernel of Γ on Tensor Cores takes: fitted to an H100."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from winolab.gpu.gamma_tensor_blocks import BN
from winolab.gpu.gamma_tensor_boxes import SLOT

OUTPUTS = BN * 384  # of an item of Γ8(6,3): 64 channels × 64 tiles × 6


@dataclass(frozen=True)
class Cycles:
    """What takes a block's time, in cycles.

    A stage of 16 channels takes as long as the longest of three: ``fixed`` and, with three filter
    rows, ``products``, or ``bare`` where no filters wait in shared memory, which are ``four`` times
    that where filters of four states serve twice the tiles; ``transforms`` of 96 tiles of eight
    states; ``box``, times the bulk tensor copies that it needs. Blocks of more than 32 tile columns
    take ``wide`` times as long, and those that share sums ``shared`` times, with more than three
    filter rows a stage ``shared_long`` times. An item takes ``outputs`` besides for OUTPUTS of
    them, and ``cluster`` for every block that shares its sums.
    """

    products: float
    bare: float
    four: float
    fixed: float
    transforms: float
    box: float
    wide: float
    outputs: float
    cluster: float
    shared: float
    shared_long: float


# By parts. Fitted to 963 times of 98 layers' plans: rms 6.9 and 6.4 %; of the plans taken by them,
# times are 1.2 and 0.8 % above the fastest's.
BOXED = {
    1: Cycles(1798, 1798, 0.87, 327, 1907, 120, 1.3, 6670, 3845, 1.13, 1.13),
    2: Cycles(4707, 5200, 0.85, 0, 3296, 104, 1.49, 7130, 3119, 1.2, 1.11),
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
    products = (c.products if v.u_ahead else c.bare) * v.share / STAGE_ROWS
    products = c.fixed + products * (c.four if tile.alpha == 4 else 1)
    transforms = c.transforms * v.slots(tile) * SLOT * tile.alpha / STAGE_STATES
    boxes = c.box * v.copies(tile, plan.size)
    stage = sum(t**SMOOTH for t in (products, transforms, boxes)) ** (1 / SMOOTH)
    share = BN * v.rows * v.columns(tile) * tile.n / OUTPUTS
    item = c.outputs * share
    if v.columns(tile) > SLOT:
        stage *= c.wide
    if v.split > 1:
        longer = c.shared if v.share <= STAGE_ROWS else c.shared_long
        return stage * longer, item + c.cluster * v.split * share
    return stage, item


def _by_elements(plan: Any) -> tuple[float, float]:
    """Cycles of a stage and of an item."""
    v = plan.variant
    longest = max(v.share / STAGE_ROWS, v.stage_tiles(plan.tile) / STAGE_TILES)
    stage, item = longest * STAGE[plan.parts], ITEM[plan.parts]
    if v.split > 1:
        return stage * SHARED_STAGE, item * (1 + BLOCK_SHARE * v.split)
    return stage, item
