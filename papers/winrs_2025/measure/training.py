"""Training on GPUs beside WinRS's Figure 13, in 16 bits.

Images are generated, since the paper's are not to be had, and nothing is judged: losses,
accuracies and times of methods stand beside each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, none, one, select
from experiments.report.figures import COLOURS, Drawn, panels_of, with_legend
from experiments.report.texts import Text
from experiments.training import seeds
from experiments.training.runs import latest
from papers.winrs_2025.grid import PAPER

# By method, format and whether gradients are named: what it is called, and its colour.
NAMES = {
    ("torch", "", False): ("PyTorch, FP32", "black"),
    ("tf32", "", False): ("PyTorch, TF32", COLOURS["tf32"]),
    ("torch", "fp16", False): ("PyTorch, FP16", COLOURS["direct"]),
    ("winolab", "", False): ("winolab, FP32", COLOURS["best"]),
    ("winolab", "fp16", False): ("winolab, FP16", COLOURS["best"]),
    ("winolab", "fp16", True): ("winolab, FP16, gradients by fused Ω", COLOURS["typed"]),
}
FUSED = NAMES["winolab", "fp16", True][0]
CONVERGED = 0.9  # accuracy of the images that are not trained on


def named(row: Row) -> tuple[str, str]:
    """What a run's method is called, and its colour."""
    return NAMES[row["method"], row["amp"], bool(row["gradients"])]


def runs(plan: str, rows: Sequence[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Each run of a plan, with PyTorch's in FP32 of the same network and device if there is one."""
    rows = latest(rows)
    for row in select(rows, plan=plan):
        same = {name: row[name] for name in ("network", "device", "processes")}
        yield row, next(iter(select(rows, plan=plan, method="torch", amp="", **same)), None)


def cells_runs(plan: str, rows: Sequence[Row]) -> Iterator[Cell]:
    """Times, memory, the last loss and accuracy of a plan's runs."""
    for row, first in runs(plan, rows):
        where = f"{row['network']}, {named(row)[0]}"
        yield one(where, "ms a step", None, row["step_ms"])
        if first:
            fast = first["step_ms"] / row["step_ms"]
            yield one(where, "times as fast as PyTorch, FP32", None, fast)
        if row.get("memory_mb") is not None:  # else cuDNN's search may be in it
            yield one(where, "MB at the peak", None, row["memory_mb"])
        yield one(where, "last loss", None, row["losses"][-1])
        if row.get("test_accuracy") is not None:
            yield one(where, "test accuracy", None, row["test_accuracy"])


def cells_figure13(rows: Sequence[Row]) -> list[Cell]:
    """FP16 beside FP32; of the paper's claim in FP32 see ``seeds``."""
    return list(cells_runs("fp16", rows))


def curves(plan: str, rows: Sequence[Row]) -> Figure:
    """A panel a network: losses over steps, a line a method."""
    rows = latest(rows)
    networks = list(dict.fromkeys(row["network"] for row in select(rows, plan=plan)))
    figure, panels = panels_of(1, len(networks), (4 * len(networks) + 1, 3.6), sharey=False)
    for panel, network in zip(panels, networks, strict=True):
        for row in select(rows, plan=plan, network=network):
            name, colour = named(row)
            losses = [math.nan if v is None else v for v in row["losses"]]
            steps = [row["every"] * i for i in range(len(losses))]
            panel.plot(steps, losses, color=colour, label=name, marker=".", linewidth=0.9)
        panel.set_title(network)
        panel.set_xlabel("step")
    panels[0].set_ylabel("loss")
    return with_legend(figure, panels[0])


def _told(cells: Sequence[Cell]) -> list[str]:
    """How many times as fast each is, and its last loss; what is missing, and what has not
    converged."""
    fast = {c.where: c.ours for c in cells if c.column.startswith("times")}
    loss = {c.where: c.ours for c in cells if c.column == "last loss"}
    right = {c.where: c.ours for c in cells if c.column == "test accuracy"}
    found = [
        f"{where}: {fast[where]:.2f} times PyTorch's speed in FP32, last loss {loss[where]:.3g}."
        for where in fast
    ]
    for network in dict.fromkeys(where.partition(",")[0] for where in loss):
        command = f"`python -m experiments.training.run --plan fp16 --networks {network}`"
        if f"{network}, {FUSED}" not in loss:
            found.append(f"{network} with gradients by fused Ω is missing: {command} trains it.")
        of = [value for where, value in right.items() if where.startswith(f"{network},")]
        if of and max(of) < CONVERGED:
            found.append(
                f"{network} has converged by nobody: accuracies are {min(of):.2f} to {max(of):.2f} "
                f"after the last step; {command[:-1]} --steps 1000` trains longer."
            )
    return found


FIGURE13 = Table(
    PAPER, "figure13", "CNN training in FP16, ours on generated images", none,
    cells_figure13, "nothing is judged: another device, other images",
    sources=("training",), values=("step_ms", "memory_mb", "losses", "test_accuracy"),
)  # fmt: skip
ACCURACY = Table(
    PAPER, "accuracy", "Accuracy of FP32 training, ours on generated images", none, seeds.of_plan,
    "the 90 % interval of five seeds' differences lies within 0.6 %; one that lies in part within, "
    "or is of fewer seeds, is open",
    sources=("training",), values=("losses", "test_accuracy"),
)  # fmt: skip
TABLES = (FIGURE13, ACCURACY)
SAID = "ours: medians of a step, the loss of the last step, accuracy on images of their own."
TEXTS = {
    ACCURACY.key: Text(
        "In FP32 accuracies of networks trained with WinRS and by PyTorch differ by less than "
        "0.6 %.",
        "Four 3×3 layers of 16 and 32 channels to convergence: 300 steps of 64 of 2000 images of "
        "32², by Adam and by SGD with momentum, 2000 others tested: by PyTorch in FP32 and in "
        "TF32, by winolab's picks, and with fused Ω for filter gradients, WinRS's. "
        f"{seeds.DATA} (`python -m experiments.training.run --plan seeds`)",
        "ours: means over seeds, 90 % intervals; differences are of the same seeds.",
        seeds.said,
    ),
    FIGURE13.key: Text(
        "WinRS trains ResNet-34 and -50 on ImageNet-1K in FP16 with a scaled loss; it converges as "
        "FP32 by PyTorch does. The curves did not survive.",
        "The same networks by SGD with momentum on 10,000 generated images of 32² in ten classes, "
        "200 steps of 256: by PyTorch in FP32 and under autocast, by winolab's own picks, and with "
        "filter gradients by fused Ω (`python -m experiments.training.run --plan fp16`).",
        SAID,
        _told,
    ),
}
FIGURES: dict[str, tuple[Drawn, ...]] = {
    FIGURE13.key: ((lambda rows: curves("fp16", rows), "Losses of one seed, by method."),),
    ACCURACY.key: ((seeds.curves, "Losses of five seeds: their mean and their range."),),
}
