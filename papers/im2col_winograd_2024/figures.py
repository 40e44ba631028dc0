"""The report's figures of Im2col-Winograd."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.harness.facts import table
from experiments.harness.jobs import Row
from experiments.harness.outputs import BINS, DISTRIBUTIONS
from experiments.harness.tables import select
from experiments.report.figures import (
    COLOURS,
    INK,
    PAPER_STYLE,
    Drawn,
    gains,
    mean,
    panels_of,
    with_legend,
)
from papers.im2col_winograd_2024 import accuracy as im2col_winograd
from papers.im2col_winograd_2024 import training
from papers.im2col_winograd_2024.variants import ON_A_GPU, TABLES, cells_kernels


def table3(rows: Sequence[Row]) -> Figure:
    """A panel a kernel: MARE over channels, the paper's beside five ways to compute it."""
    columns = table(im2col_winograd.PAPER, 3)["columns"]
    figure, panels = panels_of(3, 3, (11, 8.4))
    names = {
        "typed": "published order, constants of 7 digits",
        "exact": "published order, exact constants",
        "program": "winolab's program, same points",
        "best": "winolab's program, best points",
        "direct": "direct, FP32",
    }
    for panel, column in zip(panels, columns, strict=True):
        alpha, n, r = im2col_winograd.tile_of(column)
        mine = select(rows, column=column["algorithm"])
        channels = [shape[3] for shape in column["shapes"]]
        for variant, name in names.items():
            values = [
                mean(select(mine, variant=variant, shape="x".join(map(str, shape))), "mare")
                for shape in column["shapes"]
            ]
            panel.plot(
                channels, values, "-", color=COLOURS[variant], label=name, marker=".", markersize=4
            )
        panel.plot(channels, column["mare"], label="paper", zorder=5, **PAPER_STYLE)
        panel.set_title(f"Γ{alpha}({n},{r})")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(channels, [str(c) for c in channels])
    for panel in panels[::3]:
        panel.set_ylabel("mean relative error")
    for panel in panels[-3:]:
        panel.set_xlabel("channels")
    return with_legend(figure, panels[-1])


def cugemm(rows: Sequence[Row]) -> Figure:
    """cuDNN's column over the length of the sum, between direct FP32 and TF32."""
    figure, (panel,) = panels_of(1, 1, (7, 4.2))
    lengths, paper = [], []
    for column in table(im2col_winograd.PAPER, 3)["columns"]:
        _, _, r = im2col_winograd.tile_of(column)
        lengths += [r * r * shape[3] for shape in column["shapes"]]
        paper += column["cugemm"]
    for variant, name in (("direct", "simulated FP32"), ("tf32", "simulated TF32, truncating")):
        mine = [(_terms(row), row["mare"]) for row in select(rows, variant=variant)]
        panel.plot(
            *zip(*sorted(mine), strict=True), ".", color=COLOURS[variant], markersize=5, label=name
        )
    grid = np.geomspace(200, 5e4, 50)
    rate = im2col_winograd.TF32_RATE
    panel.plot(grid, rate * grid, "-", color=INK, linewidth=0.8, label=f"{rate:.3g} · K")
    panel.plot(lengths, paper, label="paper, CuGEMM", **PAPER_STYLE)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("K, terms of a sum (filter taps × channels)")
    panel.set_ylabel("mean relative error on U[1,2]")
    panel.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def figure10(rows: Sequence[Row]) -> Figure:
    """A panel a kernel: densities of the relative error, on logarithmic axes."""
    width = DISTRIBUTIONS[0]
    rows = select(rows, width=width)
    kernels = sorted({row["column"] for row in rows})
    figure, panels = panels_of(1, len(kernels), (11, 3.4))
    middles = 10 ** ((BINS[1:] + BINS[:-1]) / 2)
    for panel, kernel in zip(panels, kernels, strict=True):
        for variant, name in im2col_winograd.NAMES.items():
            counts = [row["histogram"] for row in select(rows, column=kernel, variant=variant)]
            total = np.sum(counts, axis=0)
            density = total / total.sum() / (BINS[1] - BINS[0])
            shown = density > 0
            panel.plot(
                middles[shown], density[shown], color=COLOURS[variant], label=name, linewidth=1.2
            )
        _, alpha, n, r = kernel.split(":")
        panel.set_title(f"Γ{alpha}({n},{r}), {width} channels")
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlim(1e-9, 1e-3)
        panel.set_xlabel("relative error")
    panels[0].set_ylabel("density per decade")
    return with_legend(figure, panels[0])


FIGURES: dict[str, tuple[Drawn, ...]] = {
    **training.PICTURES,
    "im2col_winograd_2024 table3": (
        (table3, "Mean relative error of each kernel on U[1,2]. Crosses: the paper."),
        (cugemm, "The CuGEMM column over the number of terms: it grows as TF32, but for Γ8(7,2)."),
    ),
    "im2col_winograd_2024 figure10": (
        (figure10, "Distribution of the relative error of each variant."),
    ),
}
if ON_A_GPU in TABLES:
    FIGURES[ON_A_GPU.key] = (
        (
            lambda rows: gains(cells_kernels(rows)),
            "Time without a variant over time with it, by kernel.",
        ),
    )


def _terms(row: Row) -> int:
    channels, *taps = map(int, row["filter"].split("x"))
    return int(np.prod(taps)) * channels
