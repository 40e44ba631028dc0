"""The tables and figures of WinRS that are computed anew."""

from __future__ import annotations

from papers.winrs_2025 import counts, errors, grid, kernels, plans, timing
from papers.winrs_2025.measure import recorded, training
from papers.winrs_2025.measure import tables as measured

COMMANDS = {
    "fused_omega": "python -m experiments.measure.published.omega",
    **measured.COMMANDS,
    **recorded.COMMANDS,
}


TABLES = (
    grid.TABLE2,
    timing.TABLE3,
    errors.TABLE4,
    counts.FIGURE2,
    counts.FIGURE5,
    counts.FIGURE6,
    counts.FIGURE7,
    counts.SIMPLIFICATION,
    grid.FIGURE9,
    errors.FIGURE12,
    errors.ZERO_MEAN,
    timing.FRONTIER_TABLE,
    *kernels.TABLES,
    *plans.TABLES,
    *measured.TABLES,
    recorded.TABLE,
    *training.TABLES,
)
