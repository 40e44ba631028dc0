"""The reconstructed grid meets the paper's bounds; the planner meets Table 2 on it."""

from __future__ import annotations

import pytest

from experiments.harness.facts import table
from papers.winrs_2025 import counts as winrs_counts
from papers.winrs_2025 import grid as winrs_grid
from papers.winrs_2025.grid import MIB, Layer, grid
from winolab.ref.algorithms.winrs.plan import data_size


def test_three_layers_meet_the_stated_bounds() -> None:
    """52 to 2032 MB and 137 to 2174 GFLOP (sections 6.1 and 6.2), each to the digit."""
    small, wide, long = Layer(64, 16, 256, 9), Layer(256, 128, 64, 2), Layer(128, 80, 128, 9)
    assert {small, wide, long} <= set(grid())
    assert round(data_size(small.problem) / MIB) == 52
    assert round(data_size(wide.problem) / MIB) == 2032
    assert round(2 * wide.problem.macs / 1e9) == 137
    assert round(2 * long.problem.macs / 1e9) == 2174


def test_the_largest_workspace_is_eleven_buckets() -> None:
    """134.8 MB of Table 2: 7×7 taps, 256 channels, 12 segments; MB are 2²⁰ bytes."""
    printed = table("winrs_2025", 2)["rows"][0]["mb"][2]
    buckets = 11 * 4 * (7 * 256) ** 2 / MIB
    assert buckets == pytest.approx(printed, abs=0.06)


def test_table_2_and_figure_9() -> None:
    for reproduced in (winrs_grid.TABLE2, winrs_grid.FIGURE9):
        rows = [row for job in reproduced.jobs(False) for row in job.run()]
        assert all(cell.agrees in (True, None) for cell in reproduced.cells(rows))
        assert any(cell.agrees for cell in reproduced.cells(rows))


def test_what_is_counted_agrees_but_for_figure_7() -> None:
    for counted in (winrs_counts.FIGURE2, winrs_counts.FIGURE5, winrs_counts.FIGURE6):
        rows = [row for job in counted.jobs(False) for row in job.run()]
        assert all(cell.agrees in (True, None) for cell in counted.cells(rows))
    rows = [row for job in winrs_counts.FIGURE7.jobs(False) for row in job.run()]
    failed = [c.column for c in winrs_counts.FIGURE7.cells(rows) if c.agrees is False]
    assert failed == ["a 6×6 area clipped to 4×6 saves 12.5 %"]
