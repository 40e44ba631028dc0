"""Lavin & Gray 2016, Tables 5 and 6 and Figure 1: VGG network E on a Titan X, not reproduced."""

from __future__ import annotations

from functools import partial

from experiments.harness.facts import table
from experiments.harness.missing import Lines, missing

PAPER = "lavin_gray_2016"
COLUMNS = {
    "cudnn_ms": "cuDNN, ms",
    "cudnn_tflops": "cuDNN, TFLOPS",
    "ms": "F(2×2,3×3), ms",
    "tflops": "F(2×2,3×3), TFLOPS",
    "speedup": "speedup",
}
WHY = "a fused two-dimensional kernel and a Titan X are missing"


def _lines(number: int) -> Lines:
    return [
        (f"N = {row['N']}", {name: row[key] for key, name in COLUMNS.items()})
        for row in table(PAPER, number)["rows"]
    ]


def _figure1() -> Lines:
    return [("the figure", {"effective TFLOPS over batch size": None})]


TABLE5 = missing(PAPER, "table5", "VGG network E in fp32 on a Titan X", partial(_lines, 5), WHY)
TABLE6 = missing(PAPER, "table6", "VGG network E in fp16 on a Titan X", partial(_lines, 6), WHY)
FIGURE1 = missing(PAPER, "figure1", "Effective TFLOPS over batch size", _figure1, WHY)
TABLES = (TABLE5, TABLE6, FIGURE1)
