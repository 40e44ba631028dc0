"""Γ with moduli on paper: what registers hold, and the model beside the planner's."""

from __future__ import annotations

import pytest

from experiments.measure.ways.split_moduli import (
    LAYERS,
    MINIMAL,
    TILES,
    fastest,
    planned,
    problem_of,
)
from winolab.gpu.families.gamma_wgmma.plan import plans


@pytest.mark.parametrize("taps", TILES)
def test_registers_hold_the_states_of_every_block(taps: int) -> None:
    """At most the 128 sums of a thread that Γ8 has, with all states or half of them a block."""
    channels, size = LAYERS[taps][0]
    problem = problem_of(channels, size, taps)
    found = [fastest(TILES[taps], problem, (cluster,))[1] for cluster in (1, 2)]
    for block in found:
        assert block.states * block.cluster >= TILES[taps].alpha
        assert block.accumulators <= 128
    assert found[0].channels == {9: 56, 12: 40, 15: 32, 19: 24}[TILES[taps].alpha]
    assert found[1].channels > found[0].channels


def test_minimal_tiles_take_what_the_planner_predicts() -> None:
    """Within 15 %: the planner's boxes have rests, and more shapes to choose from."""
    compared = 0
    for taps in (3, 5, 7):
        tile = MINIMAL[taps]
        for channels, size in LAYERS[taps]:
            problem = problem_of(channels, size, taps)
            known = planned(plans, problem, f"gamma:{tile.alpha}:{tile.n}:{tile.r}")
            ours, _ = fastest(tile, problem, (1,))
            assert ours == pytest.approx(known, rel=0.15)
            compared += 1
    assert compared == 10


def test_more_states_take_longer_than_the_minimal_tile_of_as_many_multiplications() -> None:
    """F(6,5) saves what F(4,5) does, in blocks of fewer channels, each with its own transforms."""
    problem = problem_of(128, 28, 5)
    assert fastest(TILES[5], problem)[0] > 1.2 * fastest(MINIMAL[5], problem, (1,))[0]
