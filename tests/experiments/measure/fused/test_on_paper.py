"""What wgmma could make of a fused F(m×m, 3×3): counts by hand, and what they come to."""

from __future__ import annotations

import pytest

from experiments.measure.fused.on_paper import Fused, best, blocks, layers, picked
from winolab.gpu.families.gamma.config import PARTS

LAYERS = dict(layers())


def test_a_block_by_hand() -> None:
    """64 channels × 32 tiles × 16 states of 256 threads; 16 channels a stage, two parts of 16 bits,
    three products; 32 tiles of 2 × 2 outputs as 8 × 4 have 18 × 10 pixels or fewer."""
    block = Fused(2, 64, 32, parts=2, held=False, pair=True)
    assert (block.states, block.sums, block.box) == (16, 128, 18 * 10)
    assert block.filters == 2 * block.input == 16 * 64 * 16 * 2 * 2
    stage = block.stage
    assert stage.products == 3 * 16 * 64 * 32 * 16
    assert stage.filters == block.filters / 2
    # V stored once and read by three products, U copied and read by them, x copied and read.
    v, u, x = 65536 // 2, 65536, 180 * 16 * 4
    assert stage.shared == v + 3 * v / 2 + u + 3 * u / 2 + 2 * x


def test_registers_hold_few_tiles_of_many_states() -> None:
    """Products of 64 channels with 32, 16 and 8 tiles; in 16 bits, which the Tensor Core sums
    alone, 48, 24 and 16."""
    for parts, tiles in ((2, (32, 16, 8)), (1, (48, 24, 16))):
        found = [max(b.tiles for b in blocks(m, parts) if b.channels == 64) for m in (2, 3, 4)]
        assert tuple(found) == tiles


@pytest.mark.parametrize(
    ("precision", "name", "gain"),
    [
        ("fp32_split", "Conv3 N=32", 0.90),
        ("fp32_split", "VGG-E conv 3.1 N=1", 1.11),
        ("fp16", "Conv3 N=32", 0.89),
        ("fp16", "Conv3 N=1", 0.83),
    ],
)
def test_what_it_gains_at_most(precision, name, gain) -> None:
    """The nearest to the pick among layers of 32 and 64 images, and one image."""
    problem = LAYERS[name]
    made = best(2, PARTS[precision], problem)
    assert made
    assert picked(problem, precision)[0] / made[0] == pytest.approx(gain, abs=0.02)
