"""The tables of DWM that are computed anew, and what lies beyond them."""

from __future__ import annotations

from papers.dwm_2021 import accuracy, costs, frontier, missing

TABLES = (
    accuracy.TABLE1,
    accuracy.TABLE2,
    costs.TABLE3,
    costs.TABLE4,
    accuracy.TABLE7,
    costs.TABLE8,
    costs.TABLE14,
    costs.EQUATION18,
    frontier.FRONTIER,
    *missing.TABLES,
)
