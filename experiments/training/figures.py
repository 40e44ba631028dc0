"""Loss curves: a line a method, the mean of its seeds, and their range."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.harness.jobs import Row
from experiments.harness.tables import select
from experiments.report.figures import COLOURS, Drawn, panels_of, with_legend
from experiments.training import processes, seeds
from experiments.training.runs import latest
from experiments.training.tables import NAMES, PRECISIONS, TILES

LINES = {"winolab": COLOURS["best"], "torch": "black"}


def simulated(rows: Sequence[Row]) -> Figure:
    """Losses over steps, of all seeds."""
    rows = latest(rows)
    figure, panels = panels_of(1, 1, (6.5, 3.6))
    for who, name in NAMES.items():
        runs = select(rows, plan="simulated", method=who)
        if runs:
            seeds.drawn(panels[0], runs, name, LINES[who])
    panels[0].set_xlabel("step")
    panels[0].set_ylabel("loss")
    return with_legend(figure, panels[0])


def breaks(rows: Sequence[Row]) -> Figure:
    """Losses over steps: a panel a precision, a line a tile."""
    rows = latest(rows)
    figure, panels = panels_of(1, 3, (10, 3.4))
    colours = dict(
        zip(TILES, ("black", COLOURS["direct"], COLOURS["best"], COLOURS["typed"]), strict=True)
    )
    for panel, precision in zip(panels, PRECISIONS, strict=True):
        for alpha, (algorithm, _) in TILES.items():
            for row in select(rows, plan="breaks", precision=precision, algorithm=algorithm):
                losses = [np.nan if v is None else v for v in row["losses"]]
                steps = row["every"] * np.arange(len(losses))
                name = f"α = {alpha}" if alpha > 1 else "direct"
                panel.plot(steps, losses, color=colours[alpha], label=name, marker=".")
        panel.set_title(precision.upper())
        panel.set_xlabel("step")
    panels[0].set_ylabel("loss")
    return with_legend(figure, panels[0])


FIGURES: dict[str, tuple[Drawn, ...]] = {
    processes.TWO.key: ((processes.curves, "Losses by two processes, and by one: crosses."),),
    "training simulated": ((simulated, "Losses of five seeds: their mean and their range."),),
    "training breaks": ((breaks, "Losses of one seed, by precision and tile."),),
}
