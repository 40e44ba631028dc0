"""How long WinRS's planner takes: 10,000 random layers, prediction included."""

from __future__ import annotations

from typing import Any

import numpy as np

from papers.winrs_2025.grid import BATCHES, CHANNELS, FILTERS, Layer
from winolab.algorithm import Problem
from winolab.ref.algorithms.winrs.plan import plan

Row = dict[str, Any]
PROBLEMS, TARGET = 10_000, 1e-3  # seconds a problem


def layers() -> list[Problem]:
    """Random layers within the kinds of the paper's grid."""
    rng = np.random.default_rng(0)
    return [
        Layer(
            int(rng.choice(BATCHES)),
            int(rng.integers(4, 225)),
            int(rng.choice(CHANNELS)),
            int(rng.choice(FILTERS)),
        ).problem
        for _ in range(PROBLEMS)
    ]


def rates(measure, rounds: int) -> list[Row]:
    """Mean seconds of a plan with its predicted time."""
    problems = layers()
    seconds = measure(rounds, plans=lambda: [plan(p, "rtx4090").predicted for p in problems])
    each = seconds["plans"] / PROBLEMS
    return [
        {
            "what": "WinRS's plan of a random layer",
            "value": each,
            "unit": "s",
            "target": TARGET,
            "met": each < TARGET,
        }
    ]
