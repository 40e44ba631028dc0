"""What holds Γ and Ω on FFMA units below Φ·SGEMM: where time goes, by the planner's models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from experiments.gpu.rows import Measured, Row, cases, kernel, stored
from experiments.gpu.targets.aims import FILTER, FORWARD, ffma, limits, regular
from experiments.harness.tables import Cell, Table
from experiments.report.figures import INK, is_narrow, lines_of, with_legend
from experiments.report.texts import Text
from winolab.algorithm import gamma as named_gamma
from winolab.algorithm import omega as named_omega
from winolab.gpu.families.gamma_ffma import cost as gamma_ffma_cost
from winolab.gpu.families.gamma_ffma import plan as gamma_ffma
from winolab.gpu.families.wgrad_ffma import cost as wgrad_ffma_cost
from winolab.gpu.families.wgrad_ffma import plan as wgrad_ffma
from winolab.gpu.planner.request import Request

AIM = 0.9  # where n divides the width, with channels that are multiples of 64
GRADIENT_AIM = 0.8
USEFUL, IDLE, BEYOND = "useful products", "idle, or products in vain", "beyond the model"
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
        """The parts, 0 where the model is too slow, by up to 9 %."""
        return {name: max(0.0, part) for name, part in self.parts.items()}


@dataclass(frozen=True)
class Kind:
    """Layers that are held against Φ·SGEMM: what of the time their kernels spend, by the model."""

    aim: float
    chosen: Callable[[Sequence[Measured]], list[Measured]]
    spent: Callable[[Measured, tuple[int, int, int]], Parts]  # seconds, by (alpha, n, r)

    def bounds(self, rows: Sequence[Row]) -> list[Bound]:
        """The layers, the furthest below first."""
        mine = [(c, row) for c in self.chosen(cases(rows)) if (row := ffma(c))]
        shares = limits([c for c, _ in mine], ffma)
        parts = {c.name: self._parts(c, row) for c, row in mine}
        reached = [parts[name] for name, share in shares.items() if share >= self.aim]
        names = next(iter(parts.values()), {})
        usual = {p: sum(each[p] for each in reached) / max(1, len(reached)) for p in names}

        def reason(name: str) -> str:
            if shares[name] >= self.aim:
                return ""
            others = (p for p in names if p != USEFUL)
            return max(others, key=lambda p: parts[name][p] - usual[p])

        found = [
            Bound(f"{row['kernel']} {c.name}", shares[c.name], parts[c.name], reason(c.name))
            for c, row in mine
        ]
        return sorted(found, key=lambda b: b.share)

    def _parts(self, c: Measured, row: Row) -> Parts:
        alpha, n, r = kernel(row["kernel"])
        time = self.spent(c, (alpha, n, r))
        ffmas = c.layer.problem.macs * alpha / (n * r)
        useful = 2 * ffmas / c.device.fp32_peak
        measured = 2 * c.layer.problem.macs / row["tflops"] / 1e12
        rest = {name: seconds for name, seconds in time.items() if name != "products"}
        parts = {
            USEFUL: useful,
            IDLE: time["products"] - useful,
            **rest,
            BEYOND: measured - sum(time.values()),
        }
        return {name: seconds / measured for name, seconds in parts.items()}

    def cells(self, rows: Sequence[Row]) -> list[Cell]:
        """Each layer's share of Φ·SGEMM, and parts of its time."""
        found = []
        for b in self.bounds(rows):
            note = f"more than where the aim is reached: {b.reason}" if b.reason else ""
            for column, value in {SHARE: b.share, **b.shown}.items():
                found.append(Cell(b.name, column, None, value, value, value, note=note))
                note = ""
        return found

    def told(self) -> list[str]:
        """How many layers miss the aim, and what more than others they spend their time on."""
        found = self.bounds(stored())
        below = [b for b in found if b.reason]
        lines = [f"{len(below)} of {len(found)} layers are below {self.aim:g} of Φ·SGEMM."]
        for reason, count in Counter(b.reason for b in below).most_common():
            mine = [b for b in below if b.reason == reason]
            ends = (pick(b.parts[reason] for b in mine) for pick in (min, max))
            much = f"{' to '.join(dict.fromkeys(f'{end:.0%}' for end in ends))} of the time"
            what = ", ".join(b.name for b in mine)
            lines.append(f"In {count} of these more than usual is {reason}, {much}: {what}.")
        return lines

    def picture(self, rows: Sequence[Row]) -> Figure:
        """Parts of the time, a bar a layer, and the share of Φ·SGEMM."""
        every = self.bounds(rows)
        names = [b.name for b in every]
        figure, panel = lines_of(names, (7.2, 0.2 * len(every) + 1.6))
        thick = 0.35 if is_narrow() else 0.8
        at, left = np.arange(len(every)), np.zeros(len(every))
        for i, name in enumerate(every[0].parts):
            values = np.array([b.shown[name] for b in every])
            panel.barh(at, values, thick, left, color=f"C{i}", alpha=0.75, label=name)
            left += values
        panel.plot([b.share for b in every], at, "o", color=INK, markersize=3.5, label=SHARE)
        panel.axvline(self.aim, color=INK, linewidth=0.8, linestyle="--")
        panel.set(xlabel="of the time", xlim=(0, 1.1))
        return with_legend(figure, panel)


def _forward(c: Measured, tile: tuple[int, int, int]) -> Parts:
    asked = Request(c.layer.problem, FORWARD, c.device, named_gamma(*tile), "fp32_ffma")
    plans = gamma_ffma.own_plans(asked)
    time = gamma_ffma_cost.spent(min(plans, key=lambda p: p.predicted))
    both = time.pop("launch") + time.pop("filter")
    return {**time, "launch and filter": both}


def _gradient(c: Measured, tile: tuple[int, int, int]) -> Parts:
    # What is not admissible has to be named, what runs in pieces cannot be.
    algorithm = named_omega(*tile) if c.layer.taps % tile[1] == 0 else None
    asked = Request(c.layer.problem, FILTER, c.device, algorithm, "fp32_ffma")
    found = (p for p in wgrad_ffma.flat_plans(asked) if (p.tile.alpha, p.tile.n, p.tile.r) == tile)
    return wgrad_ffma_cost.spent(min(found, key=lambda p: p.predicted))


def _gradients(every: Sequence[Measured]) -> list[Measured]:
    return [c for c in every if (c.list, c.direction, c.group) == ("winrs", FILTER, "fp32")]


GAMMA = Kind(AIM, regular, _forward)
OMEGA = Kind(GRADIENT_AIM, _gradients, _gradient)
MODEL = (
    "The planner's timing model, which predicts what the longest block does: FFMAs, the issue "
    "slots of operands and of transforms, waits, what is around a sum, launches. Useful "
    "products are those that the algorithm needs, at the peak of all multiprocessors; others are "
    "of tiles and channels that do not exist, or stand for multiprocessors with less work than "
    "the longest. Beyond the model is what was measured besides. cuBLAS's SGEMM itself has 0.77 of "
    "the peak: a layer at Φ·SGEMM spends 0.77 of its time on useful products."
)
BOUNDS = Table(
    "gpu", "bounds", "What holds Γ on FFMA units below Φ·SGEMM",
    lambda full: [], GAMMA.cells, "nothing is judged",
    sources=("throughput",),
)  # fmt: skip
GRADIENTS = Table(
    "gpu", "gradient bounds", "What holds Ω on FFMA units below Φ·SGEMM",
    lambda full: [], OMEGA.cells, "nothing is judged",
    sources=("throughput",),
)  # fmt: skip
FIGURES = {
    BOUNDS.key: (
        (GAMMA.picture, "Where the time of Γ on FFMA units goes, by the planner's model, and the "
         "share of Φ·SGEMM. Dashed: the aim."),
    ),
    GRADIENTS.key: (
        (OMEGA.picture, "Where the time of Ω on FFMA units goes, by the planner's model, and the "
         "share of Φ·SGEMM. Dashed: the aim."),
    ),
}  # fmt: skip
TEXTS = {
    BOUNDS.key: Text(
        "Layers of which n divides the width, with channels that are multiples of 64.",
        f"{MODEL} With 16 states, too, a warp that only copies the transformed filter keeps issue "
        "slots busy (table of counters).",
        "ours: the share; parts of the measured time.",
        lambda _: GAMMA.told(),
    ),
    GRADIENTS.key: Text(
        "The sample of WinRS's grid, each layer by the fastest FFMA kernel.",
        f"{MODEL} Every unit of gradients is transformed for 64 channels only, once a block: "
        "transforms take 15 to 29 % of the time, reads of operands 9 to 17 %. Sums at "
        "alpha 16 are cut, so that they err less: outputs.",
        "ours: the share; parts of the measured time.",
        lambda _: OMEGA.told(),
    ),
}
