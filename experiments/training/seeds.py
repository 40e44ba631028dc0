"""What seeds leave of a difference: runs of several seeds, and WinRS's 0.6 % judged by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.harness.jobs import Row
from experiments.harness.missing import not_reproduced
from experiments.harness.tables import Cell, interval, select
from experiments.harness.verdicts import Verdict
from experiments.report.figures import COLOURS, panels_of, with_legend
from experiments.training.runs import SEEDS, latest

DATA = "Images are generated, ten classes of textures (experiments/training/images.py)."
PRINTED = 0.6  # percent of accuracy that WinRS's FP32 differs from cuDNN's by, at most
CLAIM = "accuracy within 0.6 % of PyTorch's, FP32"
REST = "python -m experiments.training.run --plan seeds"
SAME = "torch"
# By method, and whether WinRS's gradients are named: what it is called, and its colour.
WAYS = {
    SAME: ("PyTorch, FP32", "black"),
    "tf32": ("PyTorch, TF32", COLOURS["tf32"]),
    "winolab": ("winolab, FP32", COLOURS["best"]),
    "fused": ("winolab, FP32, gradients by fused Ω", COLOURS["typed"]),
}
Runs = dict[int, Row]  # by seed


def way(row: Row) -> str:
    """Which of WAYS a run of plan ``seeds`` is."""
    return "fused" if row["gradients"] else row["method"]


def by_method(rows: Sequence[Row]) -> dict[str, Runs]:
    """Runs that came to their end, of one plan and optimizer."""
    found: dict[str, Runs] = {}
    for row in latest(rows):
        if row["diverged"] is None:
            found.setdefault(row["method"], {})[row["seed"]] = row
    return found


def by_way(rows: Sequence[Row]) -> dict[str, Runs]:
    """The same of plan ``seeds``, by its ways."""
    return by_method([{**row, "method": way(row)} for row in rows])


def cells(names: Mapping[str, str], found: Mapping[str, Runs], optimizer: str) -> Iterator[Cell]:
    """Loss and accuracy of each, means over seeds, and how far its accuracies lie from PyTorch's of
    the same seeds: 90 % intervals."""
    for who, name in names.items():
        runs = list(found.get(who, {}).values())
        if not runs:
            continue
        where = f"{name}, {optimizer}, {len(runs)} seeds"
        yield Cell(where, "last loss", None, *interval([run["losses"][-1] for run in runs]))
        for split in ("train", "test"):
            values = [run[f"{split}_accuracy"] for run in runs]
            yield Cell(where, f"{split} accuracy", None, *interval(values))
        if apart := differences(found, who):
            less = f"{name} less PyTorch's, {optimizer}, {len(apart)} seeds"
            yield Cell(less, "test accuracy", None, *interval(apart))


def differences(found: Mapping[str, Runs], who: str) -> list[float]:
    """Test accuracies less PyTorch's, of every seed that both have; none of PyTorch's own."""
    mine, theirs = found.get(who, {}), found.get(SAME, {})
    seeds = sorted(mine.keys() & theirs.keys()) if who != SAME else []
    return [mine[seed]["test_accuracy"] - theirs[seed]["test_accuracy"] for seed in seeds]


def of_plan(rows: Sequence[Row]) -> list[Cell]:
    """Plan ``seeds`` and the claim; none without rows."""
    names = {who: name for who, (name, _) in WAYS.items()}
    mine = select(rows, plan="seeds")
    found = [
        cell
        for optimizer in sorted({row["optimizer"] for row in mine})
        for cell in cells(names, by_way(select(mine, optimizer=optimizer)), optimizer)
    ]
    return [*found, *claims(rows)] if found else []


def claims(rows: Sequence[Row]) -> list[Cell]:
    """WinRS's claim, an optimizer each, of its own gradients, or the claim alone without rows.

    It holds where the whole 90 % interval of all SEEDS' differences lies within 0.6 %, fails where
    none of it does, and else seeds lie further apart than what is to be told. Of fewer seeds it is
    open: accuracies are multiples of 1/2000, of which three may agree by chance.
    """
    found = []
    mine = select(rows, plan="seeds")
    for optimizer in sorted({row["optimizer"] for row in mine}):
        apart = differences(by_way(select(mine, optimizer=optimizer)), "fused")
        if len(apart) < 2:
            continue
        ours, low, high = (100 * value for value in interval(apart))
        decided = max(abs(low), abs(high)) <= PRINTED or low > PRINTED or high < -PRINTED
        note = "" if decided else "seeds lie further apart"
        if len(apart) < SEEDS:
            note = f"{len(apart)} of {SEEDS} seeds, `{REST}` trains the rest"
        found.append(
            Cell(
                f"{WAYS['fused'][0]}, {optimizer}, {len(apart)} seeds", CLAIM, PRINTED, ours, low,
                high, (-PRINTED, PRINTED), Verdict.OPEN if note else None, claim=True,
                note=note,
            )
        )  # fmt: skip
    return found or [not_reproduced("claim", CLAIM, PRINTED)]


def curves(rows: Sequence[Row]) -> Figure:
    """A panel an optimizer: losses over steps, the mean of each way's seeds and their range."""
    mine = select(rows, plan="seeds")
    optimizers = sorted({row["optimizer"] for row in mine})
    figure, panels = panels_of(1, len(optimizers), (4 * len(optimizers) + 1, 3.4))
    for panel, optimizer in zip(panels, optimizers, strict=True):
        found = by_way(select(mine, optimizer=optimizer))
        for who, (name, colour) in WAYS.items():
            if who in found:
                drawn(panel, list(found[who].values()), name, colour)
        panel.set_title(optimizer)
        panel.set_xlabel("step")
        panel.set_yscale("log")
    panels[0].set_ylabel("loss")
    return with_legend(figure, panels[0])


def drawn(panel, runs: Sequence[Row], name: str, colour: str) -> None:
    """The mean loss of some runs over steps, and their range."""
    losses = np.array([run["losses"] for run in runs], dtype=float)
    steps = runs[0]["every"] * np.arange(losses.shape[1])
    panel.plot(steps, losses.mean(0), color=colour, label=name, marker=".")
    panel.fill_between(steps, losses.min(0), losses.max(0), color=colour, alpha=0.15)


def said(cells: Sequence[Cell]) -> list[str]:
    """How far test accuracies lie from PyTorch's, and how far seeds lie apart by themselves."""
    apart = [c for c in cells if "less PyTorch's" in c.where]
    spread = [c.high - c.low for c in cells if c.column == "test accuracy" and c not in apart]
    found = []
    for c in apart:
        within = max(abs(c.low), abs(c.high)) <= PRINTED / 100
        found.append(
            f"{c.where}: test accuracy {100 * c.ours:+.2f} % ({100 * c.low:+.2f} to "
            f"{100 * c.high:+.2f}), {'' if within else 'not '}all of it within 0.6 %."
        )
    found += [f"{c.where}: the claim is open: {c.note}." for c in cells if c.claim and c.note]
    return [*found, f"A way's own interval is {100 * max(spread):.1f} % wide, at most."]
