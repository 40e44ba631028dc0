"""The tables and figures of WinRS that are regenerated."""

from __future__ import annotations

from papers.winrs_2025 import counts, errors, grid, kernels, missing, timing

TABLES = (
    grid.TABLE2,
    timing.TABLE3,
    errors.TABLE4,
    counts.FIGURE2,
    counts.FIGURE5,
    counts.FIGURE6,
    counts.FIGURE7,
    grid.FIGURE9,
    errors.FIGURE12,
    errors.ZERO_MEAN,
    timing.FRONTIER_TABLE,
    *kernels.TABLES,
    *missing.TABLES,
)
