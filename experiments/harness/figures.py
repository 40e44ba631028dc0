"""The report's figures: each function takes a table's rows and returns a Figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.facts import table
from experiments.harness.jobs import Row
from experiments.harness.outputs import BINS
from experiments.harness.tables import interval, select
from papers.dwm_2021 import frontier
from papers.im2col_winograd_2024 import accuracy as im2col_winograd
from papers.im2col_winograd_2024 import points_study
from papers.lavin_gray_2016 import accuracy as lavin_gray

INK = "#333333"
PAPER_STYLE = {"color": "black", "marker": "x", "linestyle": "none", "markersize": 7}
COLOURS = {
    "typed": "#c44e52",
    "exact": "#dd8452",
    "program": "#8172b3",
    "best": "#4c72b0",
    "direct": "#55a868",
    "tf32": "#937860",
}
KINDS = {
    "u12": "U[1,2]",
    "u01": "U[0,1]",
    "u11": "U[-1,1]",
    "normal": "normal",
    "relu": "after ReLU",
    "wide": "wide exponents",
}
METRICS = {"mare": "mean relative error", "relative_rms": "relative RMS"}
SETTINGS: Any = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "winolab",
}


mpl.rcParams.update(SETTINGS)


def table4(rows: Sequence[Row]) -> Figure:
    """One panel an algorithm: the paper's maxima as crosses, ours as points with intervals."""
    figure, panels = _panels(1, 4, (11, 3.2), sharey=False)
    layers = [layer["layer"] for layer in lavin_gray.layers()]
    columns = [("direct", "fp32"), ("F2x2", "fp32"), ("F4x4", "fp32"), ("F4x4", "fp16")]
    cells = lavin_gray.cells(rows)
    for panel, (column, kind) in zip(panels, columns, strict=True):
        for marker, colour, part in (("o", "best", ""), ("s", "typed", ", sums of")):
            name = f"{column}, fp16 data" if kind == "fp16" else f"{column}, fp32"
            mine = [
                c for c in cells if c.column == name or (part and c.column.startswith(name + part))
            ]
            mine = [c for c in mine if bool(part) == (part in c.column and bool(part))]
            if mine:
                _points(
                    panel,
                    [layers.index(c.where.removeprefix("conv ")) for c in mine],
                    [(c.ours, c.low, c.high) for c in mine],
                    COLOURS[colour],
                    marker,
                    "simulated, 90 % interval" if not part else "simulated, sums of 256 channels",
                )
        key = "fp16" if kind == "fp16" else column
        panel.plot(
            range(len(layers)),
            [layer[key] for layer in lavin_gray.layers()],
            label="paper",
            **PAPER_STYLE,
        )
        panel.set_yscale("log")
        panel.set_xticks(range(len(layers)), layers)
        titles = {"direct": "direct", "F2x2": "F(2×2,3×3)", "F4x4": "F(4×4,3×3)"}
        panel.set_title("fp16 data, F(4×4,3×3)" if kind == "fp16" else titles[column] + ", fp32")
        panel.set_xlabel("VGG layer")
    panels[0].set_ylabel("largest |error| of the layer")
    return _legend(figure, panels[2])


def table3(rows: Sequence[Row]) -> Figure:
    """A panel a kernel: MARE over channels, the paper's beside five ways to compute it."""
    columns = table(im2col_winograd.PAPER, 3)["columns"]
    figure, panels = _panels(3, 3, (11, 8.4))
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
                _mean(select(mine, variant=variant, shape="x".join(map(str, shape))), "mare")
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
    return _legend(figure, panels[-1])


def cugemm(rows: Sequence[Row]) -> Figure:
    """cuDNN's column over the length of the sum, between direct FP32 and TF32."""
    figure, (panel,) = _panels(1, 1, (7, 4.2))
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
    width = im2col_winograd.FIGURE_CHANNELS[0]
    rows = select(rows, width=width)
    kernels = sorted({row["column"] for row in rows})
    figure, panels = _panels(1, len(kernels), (11, 3.4))
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
    return _legend(figure, panels[0])


def rows_gain(rows: Sequence[Row]) -> Figure:
    """A panel a kind of data: error over that of the best points, every tile."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    figure, panels = _panels(2, 3, (11, 6.4))
    panels.pop().set_axis_off()
    cells = points_study.cells_rows(rows)
    order = [v.name for v in points_study.VARIANTS] + [points_study.TYPED.name]
    order.remove(points_study.BEST)
    colours = dict(zip(order, ("exact", "program", "best", "direct", "typed"), strict=True))
    for panel, kind in zip(panels, kinds, strict=True):
        for i, variant in enumerate(order):
            mine = [
                (points_study.TILES.index(_tile(c.where)), c)
                for c in cells
                if c.where.endswith(f", {kind}") and c.column == f"{variant}, over best points"
            ]
            _points(
                panel,
                [j + (i - 2) * 0.12 for j, _ in mine],
                [(c.ours, c.low, c.high) for _, c in mine],
                COLOURS[colours[variant]],
                "o",
                variant,
            )
        panel.axhline(1, color=INK, linewidth=0.8)
        panel.set_yscale("log")
        panel.set_title(f"{KINDS[kind]}: {METRICS[points_study.metric_of(kind)]}")
        names = [_label(text) for text in points_study.TILES]
        panel.set_xticks(range(len(names)), names, fontsize=8)
    for panel in panels[::3]:
        panel.set_ylabel("error over that of best points")
    return _legend(figure, panels[0])


def layers_gain(rows: Sequence[Row]) -> Figure:
    """Errors of 9 × 9 filters over channels, positive and zero-mean data."""
    figure, panels = _panels(1, 2, (9, 3.6), sharey=False)
    names = list(dict.fromkeys(row["variant"] for row in rows))
    colours = dict(zip(names, ("exact", "program", "best", "direct", "typed"), strict=True))
    for panel, kind in zip(panels, ("u12", "u11"), strict=True):
        metric = points_study.metric_of(kind)
        for name in names:
            values = [
                _mean(select(rows, kind=kind, variant=name, width=str(c)), metric)
                for c in points_study.CHANNELS
            ]
            panel.plot(
                points_study.CHANNELS, values, "o-", markersize=4, label=name,
                color=COLOURS[colours[name]],
            )  # fmt: skip
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(points_study.CHANNELS, [str(c) for c in points_study.CHANNELS])
        panel.set_xlabel("channels")
        panel.set_title(f"{KINDS[kind]}: {METRICS[metric]}")
    return _legend(figure, panels[0])


FIGURES: dict[str, tuple[tuple[Callable[[Sequence[Row]], Figure], str], ...]] = {
    "lavin_gray_2016 table4": (
        (table4, "Largest errors of a layer. Crosses: the paper. Points: our maxima."),
    ),
    "im2col_winograd_2024 table3": (
        (table3, "Mean relative error of each kernel on U[1,2]. Crosses: the paper."),
        (cugemm, "The CuGEMM column against the number of terms: it is TF32, but for Γ8(7,2)'s."),
    ),
    "im2col_winograd_2024 figure10": (
        (figure10, "Distribution of the relative error over sampled outputs."),
    ),
    "dwm_2021 frontier": (
        (
            frontier.figure,
            "Lines: predicted along the front. Crosses: measured. Circles: DWM's own choice.",
        ),
    ),
    "points rows": ((rows_gain, "Error over that of the best points; above 1 the best win."),),
    "points layers": ((layers_gain, "9 × 9 filters: the gain on U[1,2] fades with channels."),),
}


def _panels(rows: int, columns: int, size: tuple[float, float], sharey: bool = True):
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    return figure, list(grid.ravel())


def _points(panel: Axes, at, values, colour: str, marker: str, label: str) -> None:
    middle, low, high = (np.array(v) for v in zip(*values, strict=True))
    panel.errorbar(
        at, middle, [middle - low, high - middle], fmt=marker, color=colour, markersize=4,
        elinewidth=1, capsize=2, label=label,
    )  # fmt: skip


def _legend(figure: Figure, panel: Axes) -> Figure:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _mean(rows: Sequence[Row], metric: str) -> float:
    return interval([row[metric] for row in rows])[0]


def _terms(row: Row) -> int:
    channels, *taps = map(int, row["filter"].split("x"))
    return int(np.prod(taps)) * channels


def _tile(where: str) -> str:
    alpha, rest = where.removeprefix("Γ").split("(")
    n, r = rest.split(")")[0].split(",")
    return f"gamma:{alpha}:{n}:{r}"


def _label(text: str) -> str:
    _, alpha, n, r = text.split(":")
    return f"Γ{alpha}({n},{r})"
