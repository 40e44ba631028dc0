import pytest

from experiments.harness.tables import rows_of
from papers.dwm_2021 import strategies
from winolab.algorithm import Problem


def test_the_grid_has_2000_shapes():
    shapes = list(strategies.grid())
    assert len(set(shapes)) == len(shapes) == 2000
    assert max(s.problem.x_shape[0] * s.size**s.ndim * s.channels for s in shapes) < 2**31


def test_a_shape_has_the_model_s_time_of_every_strategy_that_serves_it():
    strided = Problem.of((32, 112, 112, 128), (128, 9, 9, 128), stride=2, padding=4)
    row = strategies.predicted(strided)
    assert row["winograd_us"] is None
    assert strategies.best(row, ("direct", "dwm", "phases")) == "phases"
    unit = strategies.predicted(Problem.of((1, 14, 14, 16), (16, 5, 5, 16), padding=2))
    assert unit["phases_us"] is None
    assert unit["picked_us"] <= min(unit[f"{s}_us"] for s in strategies.STRATEGIES)


def test_shares_and_ratios_are_of_the_rows():
    rows = [{"direct_us": 2.0, "winograd_us": None, "dwm_us": v} for v in (1.0, 4.0)]
    assert strategies.share(rows) == 0.5
    assert strategies.ratio(rows, "direct", "dwm") == pytest.approx(1)


def test_kept_rows_are_all_of_the_grid():
    names = ("ndim", "kernel", "stride", "size", "channels", "batch")
    kept = {tuple(row[n] for n in names) for row in rows_of(strategies.STRATEGY)}
    assert kept == {tuple(vars(s).values()) for s in strategies.grid()}
