"""The tables of DWM that are computed anew, and what lies beyond them."""

from __future__ import annotations

from papers.dwm_2021 import accuracy, costs, frontier, missing, ranges, speeds, strategies
from papers.dwm_2021.derived import equations, memory

TABLES = (
    accuracy.TABLE1,
    accuracy.TABLE2,
    costs.TABLE3,
    costs.TABLE4,
    accuracy.TABLE7,
    costs.TABLE8,
    memory.TABLE14,
    ranges.RANGES,
    ranges.MEASURED,
    strategies.STRATEGY,
    equations.EQUATION18,
    equations.EQUATION23,
    frontier.FRONTIER,
    *speeds.TABLES,
    *missing.TABLES,
)

COMMANDS = {
    **({speeds.SOURCE: "python -m papers.dwm_2021.gpu_times"} if speeds.TABLES else {}),
    ranges.GPU_SOURCE: "python -m papers.dwm_2021.measure.ranges",
}
