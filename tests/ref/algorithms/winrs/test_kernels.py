"""Kernels and pairs: blocks, residency, the choice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.algorithm import Tile
from winolab.device import DATASHEETS
from winolab.ref.algorithms.winrs.kernels import TILES, Kernel, kernels, pair

ADA = DATASHEETS["rtx4090"]


def test_alpha_is_two_four_eight_or_sixteen() -> None:
    """Figure 6, direct convolution being its Ω2(1,1)."""
    assert {tile.alpha for tile in TILES["fp32"]} == {1, 4, 8, 16}
    assert str(Kernel(Tile(1, 1))) == "Ω2(1,1)"
    assert str(Kernel(Tile(9, 8))) == "Ω16(9,8)"


def test_fp32_accumulators_would_not_fit_beside_fp16_blocks() -> None:
    """Footnote 3's 64 × 64 at α = 16 are 256 accumulators a thread; a thread has 255 registers."""
    bn, bm = Kernel(Tile(9, 8), "fp16").block
    assert bn * bm * 16 // 256 == 256
    assert Kernel(Tile(9, 8), "fp16").resident == 1
    assert Kernel(Tile(3, 6)).resident == 2


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_blocks_of_other_alphas_are_refused_with_those_that_exist(precision: str) -> None:
    for alpha in range(1, 17):
        kernel = Kernel(Tile(1, alpha), precision)
        if alpha in {1, 4, 8, 16}:
            assert min(kernel.block) > 0
        else:
            with pytest.raises(ValueError, match="alpha 1, 4, 8, 16 only; choose"):
                assert min(kernel.block) > 0


def test_intensity_is_equation_4_with_its_alpha() -> None:
    assert Kernel(Tile(3, 6)).intensity == pytest.approx(2 * 8 * 64 * 32 / (64 * 6 + 32 * 8))


def test_faster_kernels_save_more() -> None:
    rates = [Kernel(Tile(n, r)).throughput(ADA) for n, r in ((1, 1), (3, 2), (3, 6), (9, 8))]
    assert rates == sorted(rates)


@given(st.integers(2, 9), st.integers(1, 300), st.booleans())
@settings(deadline=None, max_examples=200)
def test_pairs_cover_the_width_and_give_the_bulk_to_the_faster(
    taps: int, width: int, admissible: bool
) -> None:
    choice = kernels(taps, "fp32", "paper", admissible)
    found = pair(width, choice, choice, ADA)
    rest = found.rest * found.second.tile.r if found.second else 0
    assert found.units * found.first.tile.r + rest == width
    assert all(taps % k.tile.n == 0 for k in found.kernels)
    if found.second is not None:
        assert found.second.throughput(ADA) <= found.first.throughput(ADA)
