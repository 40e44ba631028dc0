"""Refit what was fitted on openCNN's Table 1: ``python -m papers.opencnn_2021.fits``."""

from __future__ import annotations

import numpy as np

from experiments.harness.facts import table
from experiments.harness.fits import Fit, Values, command
from papers.opencnn_2021.layouts import FITTED, LAYOUTS, PAPER
from winolab.gpu.families.fused2d.banks import TURING


def _used() -> Values:
    return {"transaction": TURING.transaction, "store": TURING.store}


def cycles() -> Values:
    """Cycles of a transaction and of a store, of loads and stores of one, two and four each."""
    rows, measured = [], []
    for line in table(PAPER, "1a")["rows"]:
        for transactions, column in ((1, "w32"), (2, "w64"), (4, "w128")):
            rows.append((transactions, line["type"] == "STS"))
            measured.append(line[column])
    found = np.linalg.lstsq(np.array(rows, float), np.array(measured), rcond=None)[0]
    return dict(zip(("transaction", "store"), map(float, found), strict=True))


FITS = (
    Fit(
        "cycles of Turing's shared memory",
        tuple((LAYOUTS.key, "claim", text) for text in FITTED),
        _used,
        cycles,
        rounding=0.03,
    ),
)

if __name__ == "__main__":
    command(FITS)
