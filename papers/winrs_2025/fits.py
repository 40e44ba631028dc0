"""Refit what was fitted on WinRS's numbers: ``python -m papers.winrs_2025.fits``."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from experiments.harness.facts import table
from experiments.harness.fits import Fit, Values, command
from papers.winrs_2025 import timing
from papers.winrs_2025.grid import MB, MIB, MULTIPLE, PAPER, TABLE2, grid
from papers.winrs_2025.timing import CUDNN, FITTED, KINDS, TABLE3, Predicted, over, place, predicted
from winolab.device import datasheet
from winolab.ref.algorithms.winrs.model import FILLED
from winolab.ref.algorithms.winrs.plan import (
    BLOCKS_AN_INTENSITY,
    WORKSPACE_OF_DATA,
    baseline,
    plan,
)

Array = NDArray[np.float64]
DEVICE = "rtx4090"
FILLS = [round(0.6 + i / 50, 2) for i in range(11)]
INTENSITIES = np.arange(0.1, 0.131, 0.001)


def _planner() -> Values:
    return {
        "BLOCKS_AN_INTENSITY": BLOCKS_AN_INTENSITY,
        "WORKSPACE_OF_DATA": WORKSPACE_OF_DATA,
    }


def planner() -> Values:
    """The least intensity whose average workspace comes closest to Table 2's; its maximum."""
    printed = table(PAPER, 2)["rows"][0]
    device = datasheet(DEVICE)
    plans = [plan(g.problem, device, points="paper", admissible=False) for g in grid()]
    average = math.fsum(p.workspace for p in plans) / len(plans) / MIB
    found = {}
    for intensity in INTENSITIES:
        total = 0.0
        for made in plans:
            count = baseline(made.problem, made.pair.first, device, float(intensity))
            total += _workspace(made.problem, count)
        found[round(float(intensity), 3)] = total / len(plans) / MIB
    assert math.isclose(found[BLOCKS_AN_INTENSITY], average)
    best = min(found, key=lambda k: abs(math.log(found[k] / printed["mb"][0])))
    return {"BLOCKS_AN_INTENSITY": best, "WORKSPACE_OF_DATA": printed["times"][2]}


@cache
def _workspace(problem, count: int) -> int:
    return plan(problem, DEVICE, points="paper", admissible=False, segments=count).workspace


def _model() -> Values:
    found = {"FILLED[1]": FILLED[1]}
    for (precision, algorithm), (share, moves) in CUDNN.items():
        found |= _named(precision, algorithm, share, moves)
    return found


def _named(precision: str, algorithm: str, share: float, moves: float) -> Values:
    """The constants of cuDNN's algorithm; an infinite share is none."""
    name = f"CUDNN[{precision}, {algorithm}]"
    shares = {f"{name} share": share} if math.isfinite(share) else {}
    return {**shares, f"{name} moves": moves}


def model() -> Values:
    """Least squares of the logarithms of Table 3's averages, over all constants at once."""
    times = [predicted(r["device"], r["precision"], r["filter"]) for r in table(PAPER, 3)["rows"]]

    def loss(share: float) -> float:
        return cudnn(times, {**FILLED, 1: share})[0]

    best = min(FILLS, key=loss)
    return {"FILLED[1]": best, **cudnn(times, {**FILLED, 1: best})[1]}


def cudnn(times: list[Predicted], filled: dict[int, float]) -> tuple[float, Values]:
    """The squared residuals of the best constants of cuDNN's algorithms, and those."""
    winrs = [t.seconds(filled) for t in times]
    printed, total, found = table(PAPER, 3)["rows"], 0.0, {}
    for precision, algorithm in CUDNN:
        mine = [
            (t, w, row[algorithm][timing.WORDS.index(FITTED)])
            for t, w, row in zip(times, winrs, printed, strict=True)
            if row["precision"] == precision and algorithm in row
        ]
        free = math.isfinite(CUDNN[precision, algorithm][0])

        def constants(logs: Array, free: bool = free) -> tuple[float, float]:
            return math.exp(logs[0]) if free else math.inf, math.exp(logs[-1])

        def residuals(logs: Array, mine=mine, kind=algorithm, constants=constants) -> list[float]:
            share, moves = constants(logs)
            return [math.log((t.cudnn(kind, share, moves) / w).mean() / paper)
                    for t, w, paper in mine]  # fmt: skip

        best = least_squares(residuals, np.log([0.5, 5.0])[-1 - free :])
        total += 2 * float(best.cost)
        found |= _named(precision, algorithm, *constants(best.x))
    return total, found


FITS = (
    Fit(
        "the planner's thresholds",
        (
            (TABLE2.key, MB, "average"),
            (TABLE2.key, MB, "maximum"),  # what exceeds it is left out of the grid
            (TABLE2.key, MULTIPLE, "maximum"),
        ),
        _planner,
        planner,
        rounding=0.03,
    ),
    Fit(
        "the timing model and cuDNN's",
        tuple(
            (TABLE3.key, place(row), over(kind, FITTED))
            for row in table(PAPER, 3)["rows"]
            for kind in KINDS
            if kind in row
        ),
        _model,
        model,
        rounding=0.01,
    ),
)

if __name__ == "__main__":
    command(FITS)
