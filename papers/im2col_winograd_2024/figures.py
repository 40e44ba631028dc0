"""The report's figures of Im2col-Winograd."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.gpu.figures import OURS, Who, lines_over
from experiments.gpu.rows import cases, name_of, of_kernel, uniform
from experiments.harness.facts import table
from experiments.harness.jobs import Row
from experiments.harness.outputs import BINS, DISTRIBUTIONS
from experiments.harness.tables import select, stored
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

LIBRARIES: Who = {
    "cuDNN implicit GEMM, FMA": (lambda c: c.frugal, "#55a868", "s"),
    "cuDNN fastest, FMA": (lambda c: c.any, "#8172b3", "^"),
    "implicit GEMM, TF32": (lambda c: c.tf32, "#937860", "v"),
}


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


def speeds(rows: Sequence[Row]) -> Figure:
    """Figures 8 and 9: a panel a kernel, effective TFLOPS over its shapes."""
    every = [c for c in cases(rows) if c.list in ("dragon", "table3", "grid")]
    names = [name_of(column["algorithm"]) for column in table(im2col_winograd.PAPER, 2)["rows"]]
    names = [name for name in names if of_kernel(every, name)]
    figure, panels = panels_of(
        -(-len(names) // 3), 3, (11, 3.1 * -(-len(names) // 3)), sharey=False
    )
    for panel, name in zip(panels, names, strict=False):
        mine = sorted(of_kernel(every, name), key=lambda c: c.layer.channels)
        lines_over(panel, mine, OURS | LIBRARIES)
        panel.axhline(mine[0].limit, color=INK, linewidth=0.8, linestyle="--")
        panel.set_title(name)
        labels = [f"{c.layer.output[0]}²×{c.layer.channels}" for c in mine]
        panel.set_xticks(range(len(mine)), labels, rotation=60, fontsize=7)
        panel.set_ylim(bottom=0)
    for panel in panels[len(names) :]:
        panel.set_axis_off()
    for panel in panels[::3]:
        panel.set_ylabel("effective TFLOPS")
    return with_legend(figure, panels[0])


def kernel_errors(rows: Sequence[Row]) -> Figure:
    """Table 3: mean relative errors of the kernels, the simulation and the paper."""
    rows = uniform(rows)
    columns = [c for c in table(im2col_winograd.PAPER, 3)["columns"]
               if select(rows, kernel_of=name_of(c["algorithm"]))]  # fmt: skip
    figure, panels = panels_of(-(-len(columns) // 3), 3, (10, 2.8 * -(-len(columns) // 3)))
    predicted = select(stored(im2col_winograd.PAPER), table="table3")
    who = {
        ("paper", "fp32"): ("kernel, paper's points", "#dd8452", "o"),
        ("best", "fp32"): ("kernel, best points", "#4c72b0", "o"),
        ("best", "fp32_split"): ("kernel, split products", "#c44e52", "D"),
        ("", "fp32"): ("cuDNN GEMM, FMA", "#55a868", "s"),
    }
    for panel, column in zip(panels, columns, strict=False):
        name = name_of(column["algorithm"])
        channels = [shape[3] for shape in column["shapes"]]
        for (points, products), (label, colour, marker) in who.items():
            mine = select(rows, kernel_of=name, points=points, products=products)
            found = sorted((row["channels"], row["mare"]) for row in mine)
            if found:
                panel.plot(*zip(*found, strict=True), marker, color=colour, label=label,
                           markersize=5)  # fmt: skip
        for variant, colour in (("program", "#dd8452"), ("best", "#4c72b0")):
            drawn = [
                (shape[3], np.mean([row["mare"] for row in mine]))
                for shape in column["shapes"]
                if (mine := select(predicted, column=column["algorithm"], variant=variant,
                                   shape="x".join(map(str, shape))))
            ]  # fmt: skip
            if drawn:
                panel.plot(*zip(*drawn, strict=True), color=colour, linewidth=0.9)
        panel.plot(channels, column["mare"], label="paper", **PAPER_STYLE)
        panel.set(title=name, yscale="log", xscale="log")
        panel.set_xticks(channels, [str(c) for c in channels], minor=False)
        panel.minorticks_off()
    for panel in panels[len(columns) :]:
        panel.set_axis_off()
    for panel in panels[::3]:
        panel.set_ylabel("mean relative error")
    return with_legend(figure, panels[0])


def kernel_distributions(rows: Sequence[Row]) -> Figure:
    """Figure 10: densities of the relative error of Γ16 and of cuDNN's GEMM."""
    rows = [row for row in rows if "histogram" in row and row["channels"] == 64]
    names = list(dict.fromkeys(row["kernel_of"] for row in rows))
    figure, panels = panels_of(1, max(1, len(names)), (11, 3.4))
    middles = 10 ** ((BINS[1:] + BINS[:-1]) / 2)
    colours = {"paper": "#dd8452", "best": "#4c72b0", "fp32": "#55a868", "tf32 allowed": "#937860"}
    for panel, name in zip(panels, names, strict=True):
        for row in select(rows, kernel_of=name):
            which = row["points"] or row["products"]
            labels = {"paper": "Γ16, paper's points", "best": "Γ16, best points",
                      "fp32": "cuDNN GEMM, FMA", "tf32 allowed": "cuDNN GEMM, default"}  # fmt: skip
            counts = np.array(row["histogram"])
            density = counts / counts.sum() / (BINS[1] - BINS[0])
            seen = density > 0
            panel.plot(middles[seen], density[seen], color=colours[which], label=labels[which],
                       linewidth=1.2)  # fmt: skip
        panel.set(title=f"{name}, 64 channels", xscale="log", yscale="log", xlim=(1e-9, 1e-3))
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
    "im2col_winograd_2024 table2": (
        (speeds, "The paper's Figures 8 and 9 on this GPU. Dashed: Φ·SGEMM."),
    ),
    "im2col_winograd_2024 table3_kernels": (
        (kernel_errors, "Points: kernels. Lines: the simulation. Crosses: the paper."),
    ),
    "im2col_winograd_2024 figure10_kernels": (
        (kernel_distributions, "Distribution of the relative error over all outputs computed."),
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
