"""Training by tiles that the reference computes: beside PyTorch, and where it breaks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, none, one, select
from experiments.training import processes, seeds
from experiments.training.runs import latest

TITLE = "Training"
PAPER = "training"
COMMANDS = {"training": "python -m experiments.training.run --plan seeds (… fp16, … two)"}
NAMES = {"winolab": "Γ8(6,3), gradients Ω8(3,6)", "torch": "PyTorch"}
# α: forward and data, filter gradients. Maps of eight pixels are too narrow for Ω16.
TILES = {
    1: ("direct", "direct"),
    4: ("gamma:4:2:3", "omega:4:3:2"),
    8: ("gamma:8:6:3", "omega:8:3:6"),
    16: ("gamma:16:14:3", "omega:16:3:14,omega:8:3:6"),
}
PRECISIONS = ("fp32", "tf32", "fp16")


def last(row: Row) -> float:
    """The loss of the last step; infinite where training broke."""
    return math.inf if row["diverged"] is not None else row["losses"][-1]


def cells_simulated(rows: Sequence[Row]) -> list[Cell]:
    """Plan ``simulated``, which has one optimizer."""
    mine = select(rows, plan="simulated")
    optimizers = sorted({row["optimizer"] for row in mine})
    return [
        cell
        for name in optimizers
        for cell in seeds.cells(NAMES, seeds.by_method(select(mine, optimizer=name)), name)
    ]


def cells_breaks(rows: Sequence[Row]) -> list[Cell]:
    """A tile's losses, what its gradients err, and the largest error predicted of a direction."""
    rows, found = latest(rows), []
    for precision in PRECISIONS:
        for alpha, (algorithm, _) in TILES.items():
            for row in select(rows, plan="breaks", precision=precision, algorithm=algorithm):
                name = f"α = {alpha}" if alpha > 1 else "direct"
                where = f"{precision.upper()}, {name}"
                worst = max(row["predicted_rms"].values())
                found += [
                    one(where, "last loss", None, last(row)),
                    one(where, "first gradients, relative RMS", None, row["gradient_rms"]),
                    one(where, "predicted of a layer", None, worst),
                ]
    return found


SIMULATED, BREAKS = (
    Table(
        PAPER, name, title, none, cells, "nothing is judged", sources=("training",),
        values=("losses",),
    )
    for name, title, cells in (
        (
            "simulated",
            "A tiny network by Γ8 and Ω8 and by PyTorch, five seeds, on generated images",
            cells_simulated,
        ),
        ("breaks", "Where training breaks, tile by tile", cells_breaks),
    )
)  # fmt: skip
TABLES = (SIMULATED, BREAKS, processes.TWO)
