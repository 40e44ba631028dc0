"""Fused Ω on wgmma, on paper: what it would save, and that it crosses nothing."""

from __future__ import annotations

import pytest

from papers.winrs_2025.measure.on_wgmma import cycles, lines, stage
from winolab.gpu.families.wgrad_mma.config import CONFIGS
from winolab.gpu.planner.device_model import MODEL
from winolab.ref.algorithms.winrs.kernels import TILES


@pytest.mark.parametrize("tile", TILES["fp16"][1:], ids=str)
def test_wgmma_takes_products_and_repeated_reads_away(tile) -> None:
    v = CONFIGS[tile.alpha][0]
    mma, wgmma, free = (cycles(tile, v, how=how) for how in ("mma", "wgmma", "free"))
    for name in ("transforms", "L2"):
        assert mma[name] == wgmma[name] == free[name]
    assert wgmma["products"] == pytest.approx(MODEL.gamma_mma.hopper * mma["products"])
    # α = 4: two warps of a state read the same rows of x; else each state is one warp's
    repeated = v.sharers(tile.alpha) > 1
    assert (wgmma["shared memory"] < 0.99 * mma["shared memory"]) == repeated
    assert free["shared memory"] == pytest.approx(wgmma["shared memory"] / 2)
    assert stage(tile, v) > stage(tile, v, how="wgmma") > stage(tile, v, how="free")


def test_not_even_products_for_nothing_move_the_crossing() -> None:
    """On layers of 32 channels fused Ω is as fast as direct products at 5 and 9 taps; elsewhere it
    stays behind by more than a twentieth, however fast products were."""
    for line in lines():
        as_fast = line.channels == 32 and line.taps in (5, 9)
        assert (line.speed("mma") > 0.95) == (line.speed("free") > 0.95) == as_fast
        assert 1 <= line.speed("wgmma") / line.speed("mma") < 1.1
