"""What the page of records counts."""

from __future__ import annotations

from experiments.report.records import instructions


def test_transforms_of_a_tile_are_those_that_lavin_and_gray_count() -> None:
    """Their section 4.1: 32 additions of a tile of x, 24 of a tile of y, of four outputs."""
    assert instructions("winograd:2x2:3x3@0,1,-1,inf") == (32 / 4, 24 / 4)


def test_moduli_count_inputs_and_states_apart() -> None:
    x, y = instructions("winograd:6x6:3x3@0,3/4,-3/4,4/3,-4/3,inf,x^2+1")
    assert (36 * x) % (8 + 9) == 0
    assert (36 * y) % (9 + 6) == 0
