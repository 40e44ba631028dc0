"""What the README says of openCNN: what its layout gains on another GPU."""

from __future__ import annotations

import numpy as np

from experiments.harness.facts import table
from experiments.harness.tables import stored
from papers.opencnn_2021.speeds import AUTHORS_GPU, GPU, PAPER, cells_speedups


def headline() -> str:
    """A phrase, from kept rows."""
    rows = [*stored("fused2d"), *stored("opencnn_authors")]
    cells = cells_speedups(3, rows)
    ours, theirs = (
        np.mean([cell.ours for cell in cells if cell.where.startswith(start)])
        for start in ("over yan", "the authors' code")
    )
    printed = [
        v for line in table(PAPER, 3)["rows"] if line["baseline"] == "yan" for v in line["speedup"]
    ]
    return (
        f"its layout over Yan et al.'s: {ours:.2f} ({GPU}), the authors' code {theirs:.2f} "
        f"({AUTHORS_GPU}; {np.mean(printed):.2f} printed, RTX 2080 Ti)"
    )
