"""What holds Γ on FFMA units below Φ·SGEMM: where its time goes, by the planner's timing model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from experiments.figures import INK, _panels
from experiments.gpu_aims import FORWARD, ffma, limits, regular
from experiments.gpu_rows import Measured, Row, cases, kernel, stored
from experiments.tables import Cell, Table
from experiments.texts import Text
from winolab.device import H100
from winolab.gpu import gamma
from winolab.gpu.gamma_times import spent
from winolab.gpu.plan import Request
from winolab.nouns import gamma as named

AIM = 0.9  # where n divides the width, with channels that are multiples of 64
USEFUL, IDLE, BEYOND = "useful products", "idle, or products in vain", "beyond the model"
PARTS = (USEFUL, IDLE, "operands", "transforms", "outputs", "launch and filter", BEYOND)
SHARE = "share of Φ·SGEMM"
Parts = dict[str, float]


@dataclass(frozen=True)
class Bound:
    """A layer: its share of Φ·SGEMM, and parts of the time that was measured, 1 in all."""

    name: str
    share: float
    parts: Parts
    reason: str  # what takes most beyond what it takes where the aim is reached; "": it is

    @property
    def shown(self) -> Parts:
        """The parts, 0 where the model is too slow, by up to 4 %."""
        return {name: max(0.0, part) for name, part in self.parts.items()}


def bounds(rows: Sequence[Row]) -> list[Bound]:
    """Layers that are held against Φ·SGEMM, the furthest below first."""
    mine = regular(cases(rows))
    shares = limits(mine, ffma)
    parts = {c.name: _parts(c, row) for c in mine if (row := ffma(c))}
    reached = [parts[name] for name, share in shares.items() if share >= AIM]
    usual = {p: sum(each[p] for each in reached) / max(1, len(reached)) for p in PARTS}

    def reason(name: str) -> str:
        if shares[name] >= AIM:
            return ""
        return max(PARTS[1:], key=lambda p: parts[name][p] - usual[p])

    found = [
        Bound(f"{c.kernel_of} {c.name}", shares[c.name], parts[c.name], reason(c.name))
        for c in mine
        if c.name in parts
    ]
    return sorted(found, key=lambda b: b.share)


def _parts(c: Measured, row: Row) -> Parts:
    alpha, n, r = kernel(row["kernel"])
    asked = Request(c.layer.problem, FORWARD, H100, named(alpha, n, r), "fp32_ffma")
    time = spent(min(gamma.plans(asked), key=lambda p: p.predicted))  # as contenders take it
    ffmas = c.layer.problem.macs * alpha / (n * r)
    useful = ffmas / (H100.lanes * H100.multiprocessors * H100.clock)
    measured = 2 * c.layer.problem.macs / row["tflops"] / 1e12
    parts = {
        USEFUL: useful,
        IDLE: time["products"] - useful,
        "operands": time["operands"],
        "transforms": time["transforms"],
        "outputs": time["outputs"],
        "launch and filter": time["launch"] + time["filter"],
        BEYOND: measured - sum(time.values()),
    }
    return {name: seconds / measured for name, seconds in parts.items()}


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Each layer's share of Φ·SGEMM, and parts of its time."""
    found = []
    for b in bounds(rows):
        note = f"more than where the aim is reached: {b.reason}" if b.reason else ""
        for column, value in {SHARE: b.share, **b.shown}.items():
            found.append(Cell(b.name, column, None, value, value, value, note=note))
            note = ""
    return found


def told(found: Sequence[Bound]) -> list[str]:
    """How many layers miss the aim, and what more than others they spend their time on."""
    below = [b for b in found if b.reason]
    lines = [f"{len(below)} of {len(found)} layers are below {AIM:g} of Φ·SGEMM."]
    for reason, count in Counter(b.reason for b in below).most_common():
        mine = [b for b in below if b.reason == reason]
        low, high = (pick(b.parts[reason] for b in mine) for pick in (min, max))
        much = f"{low:.0%} to {high:.0%} of the time"
        what = ", ".join(b.name for b in mine)
        lines.append(f"In {count} of these more than usual is {reason}, {much}: {what}.")
    return lines


def picture(rows: Sequence[Row]) -> Figure:
    """Parts of the time, a bar a layer, and the share of Φ·SGEMM."""
    every = bounds(rows)
    figure, (panel,) = _panels(1, 1, (max(6, 0.24 * len(every) + 2), 5))
    at, bottom = np.arange(len(every)), np.zeros(len(every))
    for i, name in enumerate(PARTS):
        values = np.array([b.shown[name] for b in every])
        panel.bar(at, values, 0.8, bottom, color=f"C{i}", alpha=0.75, label=name)
        bottom += values
    panel.plot(at, [b.share for b in every], "o", color=INK, markersize=3.5, label=SHARE)
    panel.axhline(AIM, color=INK, linewidth=0.8, linestyle="--")
    panel.set_xticks(at, [b.name for b in every], rotation=90, fontsize=6)
    panel.set(ylabel="of the time", ylim=(0, 1.1))
    panel.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=7)
    return figure


BOUNDS = Table(
    "gpu", "bounds", "What holds Γ on FFMA units below Φ·SGEMM",
    lambda full: [], cells, "nothing is judged",
)  # fmt: skip
FIGURES = {
    BOUNDS.key: (
        (picture, "Where the time of Γ on FFMA units goes, by the planner's model, and the share "
         "of Φ·SGEMM. Dashed: the aim."),
    ),
}  # fmt: skip
TEXTS = {
    BOUNDS.key: Text(
        "Layers of which n divides the width, with channels that are multiples of 64.",
        "The planner's timing model, which predicts what the longest block does: FFMAs, the issue "
        "slots of operands and of transforms, what is around an item's sum, the launch and the "
        "filter's transform. Useful products are those that the algorithm needs, at the peak of "
        "all multiprocessors; the others are of tiles and channels that do not exist, or stand "
        "for multiprocessors that have fewer items than the longest. Beyond the model is what was "
        "measured besides: with 16 states two stages wait, and issue slots are busy for less of "
        "the time than with eight (table of counters). cuBLAS's SGEMM itself has 0.77 of the peak: "
        "a layer at Φ·SGEMM spends 0.77 of its time on useful products.",
        "ours: the share; parts of the measured time.",
        lambda _: told(bounds(stored())),
    ),
}
