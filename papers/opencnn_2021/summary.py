"""What the README says of openCNN: what its layout gains on another GPU, and how fast it is."""

from __future__ import annotations

import numpy as np

from experiments.harness.facts import table
from experiments.harness.tables import stored
from papers.opencnn_2021.speeds import PAPER, cells_speedups


def headline() -> str:
    """A phrase, from kept rows."""
    rows = stored("fused2d")
    gains = [
        cell.ours
        for cell in cells_speedups(3, rows)
        if cell.where.startswith("over yan") and cell.ours
    ]
    printed = [
        v for line in table(PAPER, 3)["rows"] if line["baseline"] == "yan" for v in line["speedup"]
    ]
    best = max(row["tflops"] for row in rows if row["list"] == "opencnn" and "output_layout" in row)
    return (
        f"its layout over Yan et al.'s on an H100: {np.mean(gains):.2f} ({np.mean(printed):.2f} "
        f"printed, RTX 2080 Ti); at most {best:.0f} TFLOPS"
    )
