"""The layers of WinRS that a GPU measures: a sample of its grid."""

from __future__ import annotations

import random

from papers.winrs_2025.grid import FILTERS, grid
from winolab.bench.layers import Layer

# The grid has 1,117 layers: so many of each filter size are drawn, of at most so much work, that a
# run of all of cuDNN's algorithms fits a few minutes.
SEED, DRAWN, GFLOP = 2025, 3, 600


def sample() -> list[Layer]:
    """Layers drawn from the grid, the same ones every time."""
    found: list[Layer] = []
    for taps in FILTERS:
        mine = [g for g in grid() if g.taps == taps and 2 * g.problem.macs <= GFLOP * 1e9]
        drawn = random.Random(SEED + taps).sample(mine, DRAWN)
        found += [
            Layer(g.batch, (g.output, g.output), g.channels, g.channels, g.taps) for g in drawn
        ]
    return found


LISTS = {"winrs": sample()}
