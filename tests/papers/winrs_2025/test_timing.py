"""The timing model: fitted to Table 3's averages, judged by its minima and maxima."""

from __future__ import annotations

from collections import Counter

import pytest

from experiments.harness.verdicts import Verdict
from papers.winrs_2025.timing import FRONTIER_TABLE, TABLE3, spread


def test_averages_are_fitted_and_extremes_are_judged() -> None:
    rows = [row for job in TABLE3.jobs(False) for row in job.run()]
    cells = TABLE3.cells(rows)
    fitted = {(c.where, c.column) for c in cells if c.verdict is Verdict.FITTED}
    assert len(fitted) == 51
    assert all(column.endswith("average") for _, column in fitted)
    judged = Counter(c.column.split(", ")[-1] for c in cells if c.agrees is not None)
    assert judged == {"minimum": 51, "maximum": 51, "average": 1}  # FP16 over FP32, a claim
    assert all(abs((c.ratio or 0) - 1) <= 0.25 for c in cells if c.verdict is Verdict.FITTED)


def test_the_tolerance_is_the_paper_s_spread_between_gpus() -> None:
    """Minima over cuDNN on one GPU and on another: 24 % RMS of the logarithm."""
    assert spread() == pytest.approx(0.2436, abs=1e-4)


def test_the_planner_stays_near_the_fastest_count() -> None:
    rows = [row for job in FRONTIER_TABLE.jobs(False) for row in job.run()]
    cells = FRONTIER_TABLE.cells(rows)
    assert all(cell.ours <= 1.25 for cell in cells)
    assert {cell.verdict for cell in cells} == {Verdict.SHOWN}
