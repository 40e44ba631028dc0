"""Figures from rows measured on a GPU: aims reached, and lines of speeds, which papers draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.gpu import bounds, counters, devices, frontier, losses, variants
from experiments.gpu import gradients as gradient_table
from experiments.gpu.rows import Measured, Row
from experiments.gpu.targets import layers as gpu_layers
from experiments.gpu.targets import table as gpu_targets
from experiments.harness.tables import Cell
from experiments.harness.verdicts import Verdict
from experiments.report.figures import INK, Drawn, lines_of

Pick = Callable[[Measured], Row | None]
Who = dict[str, tuple[Pick, str, str]]
# Who is drawn how: colour and marker; ours filled, libraries hollow.
OURS: Who = {
    "winolab, FFMA": (lambda c: c.ffma, "#4c72b0", "o"),
    "winolab, split products": (lambda c: c.split, "#c44e52", "D"),
}


def lines_over(panel: Axes, mine: Sequence[Measured], who: Who) -> None:
    """Effective TFLOPS over cases, a line a method."""
    for label, (of, colour, marker) in who.items():
        found = [(i, row["tflops"]) for i, c in enumerate(mine) if (row := of(c))]
        if found:
            hollow = "white" if "winolab" not in label else colour
            panel.plot(*zip(*found, strict=True), marker=marker, color=colour, label=label,
                       linewidth=0.9, markersize=4, markerfacecolor=hollow)  # fmt: skip


def reached(cells: Callable[[Sequence[Row]], Sequence[Cell]], rows: Sequence[Row]) -> Figure:
    """Every aim of a table: how far it is exceeded (right of 1) or missed."""
    judged = [c for c in cells(rows) if c.aim and 0 < c.ours < math.inf]
    names = [f"{c.where}, {c.column}" for c in judged]
    figure, panel = lines_of(names, (8.5, 1 + 0.16 * len(judged)))
    for i, c in enumerate(judged):
        share, met = c.ours / (c.aim or 1), c.verdict is Verdict.REACHED
        share = share if (share >= 1) == met else 1 / share  # of aims that are upper limits
        panel.plot([1, share], [i, i], color=COLOURS[met], linewidth=1)
        panel.plot(share, i, "o", color=COLOURS[met], markersize=4)
        beside = (5, "left") if share >= 1 else (-5, "right")
        panel.annotate(f"{share:.3g}", (share, i), (beside[0], 0), textcoords="offset points",
                       ha=beside[1], va="center")  # fmt: skip
    panel.axvline(1, color=INK, linewidth=0.8)
    ticks = (0.05, 0.2, 1, 5, 20)
    panel.set(xscale="log", xlabel="measured / aim")
    panel.set_xticks(ticks, [f"{v:g}" for v in ticks])
    panel.set_xticks([], minor=True)
    panel.tick_params(top=True, labeltop=True)  # of a hundred lines, too, the first have an axis
    panel.margins(x=0.12)  # the numbers' room
    return figure


COLOURS = {True: "#1a7f37", False: "#b42318"}
FIGURES: dict[str, tuple[Drawn, ...]] = {
    f"gpu {name}": (
        (
            partial(reached, cells),
            "Aims reached (green, right of 1) and missed; limits inversely; those of 0 are left "
            "out.",
        ),
    )
    for name, cells in (("targets", gpu_targets.cells), ("layer targets", gpu_layers.cells))
}
for _part in (bounds, counters, devices, frontier, gradient_table, losses, variants):
    FIGURES |= _part.FIGURES
