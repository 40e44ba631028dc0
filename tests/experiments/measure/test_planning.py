"""What planning takes: shapes that are drawn, and a row of the results."""

from __future__ import annotations

from experiments.measure.planning import SHAPES, odd, row, shapes


def test_shapes_are_a_hundred_different_ones_and_the_same_every_time() -> None:
    found = list(shapes())
    assert found == list(shapes())
    assert len(set(found)) == len(found) == SHAPES
    assert {p.ndim for p in found} == {1, 2, 3}
    strange = list(odd())
    assert len(set(strange)) == len(strange) == SHAPES
    assert not any(p.unit and p.groups == 1 for p in strange[:2])
    assert {max(p.stride) for p in strange} >= {1, 2, 3}
    assert {max(p.dilation) for p in strange} >= {1, 2, 3}
    assert len({p.groups for p in strange}) > 5


def test_a_row_has_the_median_and_the_95th_percentile() -> None:
    found = row("forward", "fp32", [float(i) for i in range(100, 0, -1)])
    assert (found["first_ms"], found["median_ms"], found["p95_ms"]) == (100.0, 50.5, 95.0)
