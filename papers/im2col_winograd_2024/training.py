"""Im2col-Winograd 2024, Tables 4 and 5 and Figures 11 and 12: training, on generated images.

Rows are those of experiments/training. As long as a GPU has trained none of a table's networks, the
paper's numbers stand alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from experiments.gpu.texts import told
from experiments.harness.facts import table
from experiments.harness.jobs import Row
from experiments.harness.missing import missing, not_reproduced
from experiments.harness.tables import Cell, Table, none, one, select, stored
from experiments.harness.verdicts import Verdict
from experiments.report.figures import (
    COLOURS,
    INK,
    PAPER_STYLE,
    Drawn,
    is_narrow,
    lines_of,
    panels_of,
    with_legend,
)
from experiments.report.texts import Text
from experiments.training.runs import latest

PAPER = "im2col_winograd_2024"
WHY = "no GPU has trained these yet"
PLANS = {4: "ilsvrc", 5: "cifar"}
DATA = {4: "ILSVRC2012", 5: "Cifar10"}
FIGURES = {11: 4, 12: 5}  # and the tables whose runs they show
ACROSS = 3  # panels that a page has beside each other
COMMANDS = {"training": "python -m experiments.training.run --plan cifar; … --plan ilsvrc"}
OTHER: dict[str, Any] = {"standing": Verdict.NOT_COMPARABLE}
Pair = tuple[Row, Row]  # by winolab, by PyTorch


def lines(number: int) -> list[tuple[str, dict[str, Any]]]:
    """A table's rows by what is trained."""
    return [(f"{row['network']}, {row['training']}", row) for row in table(PAPER, number)["rows"]]


def pairs(number: int, rows: Sequence[Row], method: str = "torch") -> dict[str, Pair]:
    """Our runs and another method's of the same network and optimizer, of one device, that were
    added last."""
    rows, found = latest(rows), dict[str, Pair]()
    for where, line in lines(number):
        name, optimizer = line["network"].lower(), line["training"].partition(",")[0].lower()
        runs = select(rows, plan=PLANS[number], network=name, optimizer=optimizer)
        for mine in select(runs, method="winolab"):
            theirs = select(runs, method=method, device=mine["device"], seed=mine["seed"])
            if theirs:
                found[where] = mine, theirs[-1]
    return found


def cells_speed(number: int, rows: Sequence[Row]) -> list[Cell]:
    """Times of an epoch, which are of another set; acceleration and memory beside ours."""
    found = []
    measured, beside = pairs(number, rows), pairs(number, rows, "tf32")
    for where, line in lines(number):
        for column, key in (("Alpha", "alpha"), ("PyTorch", "pytorch")):
            found.append(not_reproduced(where, f"{column}, seconds an epoch", line[key]))
        alpha, pytorch = line["memory_mb"]
        printed = {"acceleration": line["acceleration"], "memory saved": pytorch / alpha}
        if where not in measured:
            found += [not_reproduced(where, name, value) for name, value in printed.items()]
            continue
        mine, theirs = measured[where]
        ours = {"acceleration": over(mine, theirs, "step_ms"),
                "memory saved": over(mine, theirs, "memory_mb")}  # fmt: skip
        for name, value in printed.items():
            if math.isnan(ours[name]):
                found.append(not_reproduced(where, name, value))
            else:
                found.append(one(where, name, value, ours[name], **OTHER))
        if where in beside:
            found.append(one(where, "over TF32", None, over(*beside[where], "step_ms")))
    return found


def over(mine: Row, theirs: Row, field: str) -> float:
    """PyTorch's number over ours; NaN where a row has none."""
    a, b = theirs.get(field), mine.get(field)
    return a / b if a and b else math.nan


def cells_curves(number: int, rows: Sequence[Row]) -> list[Cell]:
    """How far the curves of the same images and seeds lie apart, in shares of the first loss."""
    measured = pairs(number, rows)
    found = []
    for where, _ in lines(number):
        if where not in measured:
            continue
        mine, theirs = (run["losses"] for run in measured[where])
        both = zip(mine, theirs, strict=False)  # one that diverges ends before the other
        apart = max(abs(p - q) for p, q in both if p is not None and q is not None)
        found.append(one(where, "largest difference from PyTorch", None, apart / theirs[0]))
    return found or [not_reproduced("the figure", "loss curves", None)]


def made(rows: Sequence[Row]) -> tuple[Table, ...]:
    """The tables with these rows; those that have none are the paper's numbers alone."""
    found = []
    for number in PLANS:
        title = f"Training on {DATA[number]}, ours on generated images"
        found.append(_of(f"table{number}", title, partial(cells_speed, number), number, rows))
    for figure, number in FIGURES.items():
        title = f"Loss curves on {DATA[number]}, ours on generated images"
        cells = partial(cells_curves, number)
        found.append(_of(f"figure{figure}", title, cells, number, rows))
    return tuple(found)


def _of(name: str, title: str, cells: Any, number: int, rows: Sequence[Row]) -> Table:
    if not pairs(number, rows):
        alone = [(c.where, {c.column: c.paper}) for c in cells([])]
        return missing(PAPER, name, title, lambda: alone, WHY)
    return Table(
        PAPER, name, title, none, partial(_measured, cells, number),
        "nothing is judged: another device, other images",
        sources=("training",), values=("step_ms", "memory_mb", "losses"),
    )  # fmt: skip


def _measured(cells: Any, number: int, rows: Sequence[Row]) -> list[Cell]:
    """The cells where a network was trained by both, else none."""
    return cells(rows) if pairs(number, rows) else []


def shares(number: int, rows: Sequence[Row]) -> Figure:
    """Acceleration and memory saved of what was trained, the paper's as crosses."""
    cells = [c for c in cells_speed(number, rows) if c.standing == Verdict.NOT_COMPARABLE]
    names = list(dict.fromkeys(c.where for c in cells))
    figure, panel = lines_of(names, (7.5, 1.4 + 0.4 * len(names)))
    for column, mark in (("acceleration", "o"), ("memory saved", "s")):
        mine = {c.where: c for c in cells if c.column == column}
        if not mine:
            continue
        at = [names.index(name) for name in mine]
        panel.plot([c.ours for c in mine.values()], at, mark, label=column)
        panel.plot([c.paper or math.nan for c in mine.values()], at,
                   label="paper" if mark == "o" else "_paper", **PAPER_STYLE)  # fmt: skip
    panel.axvline(1, color=INK, linewidth=0.8)
    panel.set(xlabel="PyTorch's over ours", xlim=(0, None))
    return with_legend(figure, panel)


def curves(number: int, rows: Sequence[Row]) -> Figure:
    """A panel a network and optimizer: losses over steps, a line a method."""
    measured = pairs(number, rows)
    across = len(measured) if is_narrow() else min(ACROSS, len(measured))
    down = -(-len(measured) // across)
    figure, panels = panels_of(down, across, (3.4 * across + 1, 3 * down + 0.4), sharey=False)
    for panel in panels[len(measured) :]:
        panel.remove()
    for panel, (where, runs) in zip(panels, measured.items(), strict=False):
        for run, colour, name in zip(runs, (COLOURS["best"], "black"), ("winolab", "PyTorch"),
                                     strict=True):  # fmt: skip
            losses = [math.nan if v is None else v for v in run["losses"]]
            steps = [run["every"] * i for i in range(len(losses))]
            panel.plot(steps, losses, color=colour, label=name, marker=".", linewidth=0.9)
        panel.set_title(where.rpartition(",")[0])
        panel.set_xlabel("step")
    for panel in panels[: len(measured) : across]:
        panel.set_ylabel("loss")
    return with_legend(figure, panels[0])


TABLES = made(stored("training"))
DO = (
    "The same networks, optimizers, rate and batches, as the paper states them, on generated "
    "textures (experiments/training/images.py): neither set of images can be had. By PyTorch with "
    "winolab.torch.convert and without, FP32 with IEEE products, the same weights and images."
)
TEXTS = {
    each.key: Text(
        "Zhang et al. train CNNs with LeakyReLU by their framework and by PyTorch, on an RTX "
        "3060 Ti and an RTX 4090.",
        DO,
        "ours: PyTorch's median time of a step over ours, and memory likewise, where it is that of "
        "steps behind the first, which holds cuDNN's search for the fastest; of curves the largest "
        "difference in shares of the first loss.",
        told,
    )
    for each in TABLES
    if not each.missing
}
THERE = {number for number in PLANS if pairs(number, stored("training"))}  # trained by both
PICTURES: dict[str, tuple[Drawn, ...]] = {
    f"{PAPER} table{number}": (
        (
            partial(shares, number),
            "Times of a step, and memory where it is known, PyTorch's over ours.",
        ),
    )
    for number in PLANS
    if number in THERE
} | {
    f"{PAPER} figure{figure}": (
        (partial(curves, number), "Losses on the same generated images, the same weights."),
    )
    for figure, number in FIGURES.items()
    if number in THERE
}
