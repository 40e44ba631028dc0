"""How filter gradients are cut: units of a row, segments and their workspace."""

from __future__ import annotations

import pytest

from winolab.algorithm import Problem, Tile
from winolab.gpu.families.wgrad import PARAMS, Gradient, Timing, choose, parameters
from winolab.gpu.params import View


def gradient(size: int) -> Gradient:
    return Gradient.of(Problem.of((1, size, size, 8), (8, 3, 3, 8), padding=1))


@pytest.mark.parametrize(("size", "pitch"), [(10, 11), (16, 17), (12, None), (4, None)])
def test_a_rows_last_unit_runs_on_into_the_next_where_both_are_padding(size, pitch) -> None:
    """One column is shared: 11 positions instead of 12. A row of 12 positions has whole units, and
    a tile of 8 inputs is longer than a row of 5."""
    assert gradient(size).wrapped_pitch(Tile(3, 6)) == pitch


@pytest.mark.parametrize(("first", "buckets"), [(True, (0, 2)), (False, (0, 3))])
def test_dw_is_the_first_segments_bucket(first: bool, buckets: tuple[int, int]) -> None:
    timing, g = Timing(blocks=1, slots=100, unit=1e-6, work_tile=0, step=1), gradient(10)
    found = tuple(
        choose(g, 100, timing, first=first, count=count).workspace // (4 * g.weights)
        for count in (1, 3)
    )
    assert found == buckets


def test_the_fewest_segments_as_good_as_any_are_taken() -> None:
    """100 units in n parts beside 106 µs, and 59 ns a part that is added: 8 parts take 119 µs, 7 of
    them 121, 6 of them 123."""
    timing = Timing(blocks=1, slots=8, unit=1e-6, work_tile=1e-4, step=1)
    found = choose(gradient(40), 100, timing, limit=1 << 30)
    assert found.count == 7
    assert 121.3e-6 <= found.seconds <= 121.6e-6


def test_a_row_s_only_column_is_no_further_from_another() -> None:
    """Whose distance may be any: units that run on into the next row count in 32 bits."""
    g = Gradient.of(Problem.of((2, 5, 1, 8), (8, 3, 3, 8), padding=1))
    x, dw = View(0, (1 << 30, 1 << 30, 8, 1 << 26)), View(0, (72, 72, 24, 8, 1))
    values = parameters(g, (x, x, dw), 0, (64, 64, 1), 1, 5, 1).values
    at = {name: i for i, (name, _) in enumerate(PARAMS.fields)}
    assert [values[at[f"{name}_pixel"]] for name in ("x", "dy")] == [0, 0]
    assert [values[at[f"x_{name}"]] for name in ("batch", "depth", "row")] == [1 << 30, 0, 8]
