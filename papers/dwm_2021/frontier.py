"""Beyond DWM: error against multiplications over all pieces and tiles, its own choice marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from experiments.harness.counted import cells, row
from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, select
from experiments.report.figures import panels_of, with_legend
from winolab.algorithm import Dwm, Problem, dwm
from winolab.ref.algorithms import convolution
from winolab.ref.algorithms.dwm import decompose
from winolab.ref.algorithms.dwm.choose import choose, front, predicted
from winolab.ref.algorithms.dwm.decompose import decomposition, resolved
from winolab.ref.arithmetic.simulated import arithmetic

PAPER = "dwm_2021"
KERNELS = (3, 5, 7, 9, 11)
CHANNELS = 64
# Divisible by every tile of 2 to 8, so that no tile reaches beyond the outputs.
OUTPUTS = 840
# Points of a front that are drawn, and outputs along a dimension of a simulated block.
SHOWN, BLOCK = 10, {1: 96, 2: 12, 3: 6}
# Worse than that nobody wants: FP16's own error.
WORST = 1e-3
FP32 = arithmetic("fp32")


@dataclass(frozen=True)
class Front:
    """The front of one filter: predicted errors of its choices, measured ones of some."""

    ndim: int
    kernel: int
    stride: int

    @property
    def cost(self) -> float:
        """Tiles of more dimensions take longer to predict and to run."""
        return float(self.kernel**self.ndim)

    def problem(self, outputs: int, filters: int) -> Problem:
        size = (outputs - 1) * self.stride + self.kernel
        return Problem.of(
            (1, *[size] * self.ndim, CHANNELS),
            (filters, *[self.kernel] * self.ndim, CHANNELS),
            stride=self.stride,
        )

    def run(self) -> list[Row]:
        """Rows of the front, thinned, of DWM's own choice, and of the best at three budgets."""
        layer = self.problem(OUTPUTS, 1)
        asked = dwm(error=WORST)
        choices = [replace(asked, tiles=c.tiles, error=None) for c in front(layer, asked)]
        kept = [choices[i] for i in np.unique(np.linspace(0, len(choices) - 1, SHOWN).astype(int))]
        own = resolved(layer, dwm(), FP32)
        least = predicted(layer, own, FP32)
        direct = resolved(layer, dwm(self.kernel, 1), FP32)
        budgets = {"DWM's error": least, "twice DWM's error": 2 * least}
        budgets["direct's error"] = predicted(layer, direct, FP32)
        rows = [self._row("front", a, measured=i % 3 == 0) for i, a in enumerate(kept)]
        rows = [r for r in rows if r["predicted"] <= WORST]
        for name, budget in budgets.items():
            best = choose(layer, dwm(error=budget), FP32)
            rows.append(self._row(f"best at {name}", best, True))
        return [*rows, self._row("DWM", own, True), self._row("direct", direct, True)]

    def _row(self, column: str, algorithm: Dwm, measured: bool) -> Row:
        layer = self.problem(OUTPUTS, 1)
        saved = layer.macs / decomposition(layer, algorithm).multiplications()
        error = predicted(layer, algorithm, FP32)
        where = f"{self.ndim}-D, {self.kernel} taps, stride {self.stride}"
        return {
            "paper": PAPER,
            "table": "frontier",
            "ndim": self.ndim,
            "kernel": self.kernel,
            "stride": self.stride,
            "channels": CHANNELS,
            "precision": FP32.name,
            **row(where, column, saved, note=str(algorithm)),
            "predicted": error,
            "measured": self._measured(algorithm) if measured and error <= WORST else None,
            "seed": 0,
        }

    def _measured(self, algorithm: Dwm) -> float:
        problem = self.problem(BLOCK[self.ndim], 8)
        rng = np.random.default_rng(0)
        x, w = (
            rng.standard_normal(s).astype(np.float32) for s in (problem.x_shape, problem.w_shape)
        )
        exact = convolution.forward(x, w, problem)
        y = FP32.to_float64(decompose.forward(x, w, problem, algorithm, FP32))
        return float(np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2)))


def _jobs(full: bool) -> list[Front]:
    return [Front(d, k, s) for s in (1, 2) for d in (1, 2, 3) for k in KERNELS]


BUDGETS = ("DWM's error", "twice DWM's error", "direct's error")


def _cells(rows: Sequence[Row]) -> list[Cell]:
    """Multiplications that DWM saves, and over it the best choices at three budgets."""
    found = []
    for own in select(rows, column="DWM"):
        found += cells([own], 0)
        for budget in BUDGETS:
            (best,) = select(rows, column=f"best at {budget}", where=own["where"])
            gain = best["ours"] / own["ours"]
            cell = cells([row(own["where"], f"gain over DWM at {budget}", gain)], 0)[0]
            note = f"{best['note']}; measured {best['measured']:.2g}, DWM {own['measured']:.2g}"
            found.append(replace(cell, prediction=best["predicted"], note=note))
    return found


def figure(rows: Sequence[Row]) -> Figure:
    """A panel a dimension and stride: relative RMS over multiplications saved, a line a filter."""
    drawn, panels = panels_of(2, 3, (11, 6.5))
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.85, len(KERNELS)))
    for line, stride in enumerate((1, 2)):
        for column, ndim in enumerate((1, 2, 3)):
            panel = panels[3 * line + column]
            for kernel, colour in zip(KERNELS, colours, strict=True):
                mine = select(rows, ndim=ndim, kernel=kernel, stride=stride)
                some = sorted(select(mine, column="front"), key=lambda r: r["ours"])
                panel.plot(
                    [r["ours"] for r in some], [r["predicted"] for r in some], color=colour,
                    label=f"{kernel} taps",
                )  # fmt: skip
                known = [r for r in some if r["measured"]]
                panel.plot(
                    [r["ours"] for r in known], [r["measured"] for r in known], "x", color=colour
                )
                (own,) = select(mine, column="DWM")
                panel.plot(own["ours"], own["predicted"], "o", color=colour, markersize=7)
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_title(f"{ndim}-D, stride {stride}")
            panel.set_xlabel("direct's multiplications over its")
        panels[3 * line].set_ylabel("relative RMS error, FP32")
    return with_legend(drawn, panels[0], columns=len(KERNELS))


FRONTIER = Table(
    PAPER,
    "frontier",
    "Error against multiplications over all pieces and tiles",
    _jobs,
    _cells,
    "nothing is judged: the paper has no such table",
    long=True,
)
