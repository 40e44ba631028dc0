import pytest

from experiments.harness.tables import select
from experiments.harness.verdicts import Verdict
from papers.dwm_2021.frontier import BUDGETS, FRONTIER, Front, figure


@pytest.fixture(scope="module")
def rows():
    return [row for job in (Front(1, 5, 1), Front(1, 4, 2)) for row in job.run()]


def test_dwm_is_never_better_than_the_best_at_its_error(rows):
    cells = FRONTIER.cells(rows)
    gains = [c for c in cells if c.column.endswith(f"at {BUDGETS[0]}")]
    assert len(gains) == 2
    assert all(c.ours >= 1 for c in gains)
    assert {c.verdict for c in cells} == {Verdict.SHOWN}  # DWM's own cut is in the set


def test_predicted_errors_are_close_to_measured_ones(rows):
    """One sample of some hundred correlated outputs: within 30 %."""
    known = [row for row in rows if row["measured"]]
    assert len(known) >= 8
    assert all(1 / 1.3 <= row["measured"] / row["predicted"] <= 1.3 for row in known)


def test_along_a_front_error_and_savings_rise_together(rows):
    some = sorted(select(rows, column="front", kernel=5), key=lambda row: row["ours"])
    assert some[0]["ours"] == 1
    assert some[0]["predicted"] < some[-1]["predicted"]


def test_figure_has_a_panel_a_dimension_and_stride():
    fronts = [
        row for d in (1, 2, 3) for s in (1, 2) for k in (3, 5, 7, 9, 11) for row in made_up(d, k, s)
    ]
    assert len(figure(fronts).axes) == 6


def made_up(ndim, kernel, stride):
    common = {"ndim": ndim, "kernel": kernel, "stride": stride}
    values = {"ours": 2.0, "predicted": 1e-6, "measured": 1.1e-6}
    return [{**common, **values, "column": column} for column in ("front", "DWM")]
