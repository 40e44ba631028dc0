"""The tables of Lavin & Gray that are computed anew."""

from __future__ import annotations

from papers.lavin_gray_2016 import accuracy, costs, speeds

TABLES = (costs.TABLE1, costs.TABLE2, costs.TABLE3, accuracy.TABLE4, *speeds.TABLES)

# What writes these files, on a GPU.
COMMANDS = {"fused2d": "python -m experiments.measure.fused.own"}
