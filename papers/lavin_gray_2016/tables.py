"""The tables of Lavin & Gray that are computed anew."""

from __future__ import annotations

from papers.lavin_gray_2016 import accuracy, costs, missing

TABLES = (costs.TABLE1, costs.TABLE2, costs.TABLE3, accuracy.TABLE4, *missing.TABLES)
