"""Figures from rows measured on a GPU: speed by shape, speed against error, errors of kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.gpu import bounds, counters, devices, frontier, losses, variants
from experiments.gpu import gradients as gradient_table
from experiments.gpu.rows import (
    GRADIENT_KINDS,
    IM2COL,
    Measured,
    Row,
    cases,
    gradients,
    name_of,
    of_kernel,
    paper_alpha,
    uniform,
)
from experiments.gpu.targets import layers as gpu_layers
from experiments.gpu.targets import table as gpu_targets
from experiments.harness.facts import table
from experiments.harness.outputs import BINS
from experiments.harness.tables import Cell, select, stored
from experiments.harness.verdicts import Verdict
from experiments.report.figures import INK, PAPER_STYLE, Drawn, lines_of, panels_of, with_legend

Pick = Callable[[Measured], Row | None]
# Who is drawn how: colour and marker; ours filled, libraries hollow.
OURS: dict[str, tuple[Pick, str, str]] = {
    "winolab, FFMA": (lambda c: c.ffma, "#4c72b0", "o"),
    "winolab, split products": (lambda c: c.split, "#c44e52", "D"),
}
LIBRARIES: dict[str, tuple[Pick, str, str]] = {
    "cuDNN implicit GEMM, FMA": (lambda c: c.frugal, "#55a868", "s"),
    "cuDNN fastest, FMA": (lambda c: c.any, "#8172b3", "^"),
    "implicit GEMM, TF32": (lambda c: c.tf32, "#937860", "v"),
}
GRADIENTS: dict[str, tuple[Pick, str, str]] = {
    "cuDNN GEMM class": (lambda c: c.cudnn(*GRADIENT_KINDS["gemm"]), "#55a868", "s"),
    "cuDNN FFT": (lambda c: c.cudnn(*GRADIENT_KINDS["fft"]), "#8172b3", "^"),
    "cuDNN Winograd": (lambda c: c.cudnn(*GRADIENT_KINDS["winograd"]), "#dd8452", "p"),
    "PyTorch": (lambda c: c.fastest(lambda r: (r["method"], r["products"]) == ("torch", c.group)),
                "#937860", "v"),
}  # fmt: skip


def speeds(rows: Sequence[Row]) -> Figure:
    """Figures 8 and 9: a panel a kernel, effective TFLOPS over its shapes."""
    every = [c for c in cases(rows) if c.list in ("dragon", "table3", "grid")]
    names = [name_of(column["algorithm"]) for column in table(IM2COL, 2)["rows"]]
    names = [name for name in names if of_kernel(every, name)]
    figure, panels = panels_of(
        -(-len(names) // 3), 3, (11, 3.1 * -(-len(names) // 3)), sharey=False
    )
    for panel, name in zip(panels, names, strict=False):
        mine = sorted(of_kernel(every, name), key=lambda c: c.layer.channels)
        _lines(panel, mine, OURS | LIBRARIES)
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


def _lines(panel: Axes, mine: Sequence[Measured], who: dict[str, tuple[Pick, str, str]]) -> None:
    for label, (of, colour, marker) in who.items():
        found = [(i, row["tflops"]) for i, c in enumerate(mine) if (row := of(c))]
        if found:
            hollow = "white" if "winolab" not in label else colour
            panel.plot(*zip(*found, strict=True), marker=marker, color=colour, label=label,
                       linewidth=0.9, markersize=4, markerfacecolor=hollow)  # fmt: skip


def kernel_errors(rows: Sequence[Row]) -> Figure:
    """Table 3: mean relative errors of the kernels, the simulation and the paper."""
    rows = uniform(rows)
    columns = [c for c in table(IM2COL, 3)["columns"]
               if select(rows, kernel_of=name_of(c["algorithm"]))]  # fmt: skip
    figure, panels = panels_of(-(-len(columns) // 3), 3, (10, 2.8 * -(-len(columns) // 3)))
    predicted = select(stored(IM2COL), table="table3")
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


def gradient_speeds(rows: Sequence[Row]) -> Figure:
    """WinRS's Figures 10 and 11: effective TFLOPS of filter gradients, a panel a precision."""
    groups = [g for g in ("fp32", "fp16", "bf16") if gradients(rows, g)]
    figure, panels = panels_of(len(groups), 1, (11, 3.4 * len(groups)), sharey=False)
    for panel, group in zip(panels, groups, strict=True):
        mine = sorted(gradients(rows, group), key=lambda c: (c.layer.taps, c.layer.channels))
        who = OURS if group == "fp32" else {
            "winolab": (lambda c: c.ours, "#4c72b0", "o"),
            "winolab, any error": (lambda c: c.ours_any, "#c44e52", "D"),
        }  # fmt: skip
        _lines(panel, mine, who | GRADIENTS)
        labels = [f"{c.layer.taps}×{c.layer.taps} {c.name.split(':')[0]}" for c in mine]
        panel.set_xticks(range(len(mine)), labels, rotation=60, fontsize=7, ha="right")
        panel.set(title=group.upper(), ylabel="effective TFLOPS", ylim=(0, None))
    return with_legend(figure, *panels)


NOTHING = 1e-4  # where no workspace stands on a logarithmic axis


def gradient_workspace(rows: Sequence[Row]) -> Figure:
    """WinRS's Figure 9 and Table 2: workspace as a multiple of the data, against channels."""
    figure, (panel,) = panels_of(1, 1, (6, 3.4))
    drawn = {
        "winolab, FFMA, fastest": OURS["winolab, FFMA"],
        "winolab, split, fastest": OURS["winolab, split products"],
        "winolab, picked": (lambda c: c.ours, INK, "*"),
    }
    for label, (of, colour, marker) in (drawn | GRADIENTS).items():
        found = []
        for c in gradients(rows, "fp32"):
            row, problem = of(c), c.layer.problem
            if row and row["workspace"] is not None:
                data = 4 * sum(math.prod(shape) for shape in (problem.x_shape, problem.y_shape))
                found.append((c.layer.channels, max(row["workspace"] / data, NOTHING)))
        if found:
            face = colour if "winolab" in label else "white"
            panel.plot(*zip(*found, strict=True), marker, color=colour, label=label,
                       markersize=5, markerfacecolor=face)  # fmt: skip
    panel.axhline(0.18, color=INK, linewidth=0.8, linestyle="--")
    panel.set(xscale="log", yscale="log", xlabel="channels", ylabel="workspace over x and dy")
    panel.set_xticks([64, 128, 256, 512, 1024], ["64", "128", "256", "512", "1024"])
    panel.set_yticks([NOTHING, 1e-3, 1e-2, 0.1, 1, 10], ["none", "0.001", "0.01", "0.1", "1", "10"])
    panel.minorticks_off()
    return with_legend(figure, panel)


def gradient_errors(rows: Sequence[Row]) -> Figure:
    """WinRS's Figure 12: MARE on U[0, 1] against the accumulation length, a panel a precision."""
    groups = [g for g in ("fp32", "fp16", "bf16") if gradients(rows, g)]
    figure, panels = panels_of(1, len(groups), (max(8, 3.7 * len(groups)), 4.4), sharey=False)
    for panel, group in zip(panels, groups, strict=True):
        for c in gradients(rows, group):
            length = c.layer.batch * math.prod(c.layer.output)
            for row in c.rows:
                repeated = row["products"] == "tf32 allowed" and not row["frugal"]
                if isinstance(row.get("mare_u01"), float) and not repeated:
                    panel.plot(length, row["mare_u01"], linestyle="none", **_gradient_point(row))
        panel.set(title=group.upper(), xscale="log", yscale="log", xlabel="N·O_H·O_W")
    panels[0].set_ylabel("mean relative error")
    return with_legend(figure, *panels, columns=4)


def _gradient_point(row: Row) -> dict[str, Any]:
    if row["method"] == "winolab":
        alpha = paper_alpha(row["kernel"])
        colour = {4: "#55a868", 8: "#4c72b0", 16: "#c44e52"}[alpha]
        split = row["products"] == "fp32_split"
        name = f"Ω{alpha}{', split products' if split else ''}"
        return {"marker": "D" if split else "o", "color": colour, "label": name, "markersize": 4}
    words = {"gemm": "GEMM", "fft": "FFT", "winograd": "Winograd"}
    kinds = {name: words[kind] for kind, names in GRADIENT_KINDS.items() for name in names}
    kind = "PyTorch" if row["method"] == "torch" else f"cuDNN {kinds[row['kernel']]}"
    marker = {"GEMM": "s", "FFT": "^", "Winograd": "p", "PyTorch": "v"}[kind.split()[-1]]
    if "tf32" in row["products"]:
        kind += ", TF32 allowed"
    colour = "#937860" if "tf32" in row["products"] else "#8172b3"
    return {"marker": marker, "color": colour, "markerfacecolor": "white", "label": kind,
            "markersize": 4}  # fmt: skip


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
    panel.axvline(1, color=INK, linewidth=0.8)
    ticks = (0.05, 0.2, 1, 5, 20)
    panel.set(xscale="log", xlabel="measured / aim")
    panel.set_xticks(ticks, [f"{v:g}" for v in ticks])
    panel.set_xticks([], minor=True)
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
FIGURES |= {
    "im2col_winograd_2024 table2": (
        (speeds, "The paper's Figures 8 and 9 on this GPU. Dashed: Φ·SGEMM."),
    ),
    "im2col_winograd_2024 table3_kernels": (
        (kernel_errors, "Points: kernels. Lines: the simulation. Crosses: the paper."),
    ),
    "im2col_winograd_2024 figure10_kernels": (
        (kernel_distributions, "Distribution of the relative error over all outputs computed."),
    ),
    "winrs_2025 table2_kernels": (
        (gradient_workspace, "Workspace against channels. Dashed: the paper's average."),
    ),
    "winrs_2025 table3_kernels": (
        (gradient_speeds, "The paper's Figures 10 and 11 on this GPU."),
    ),
    "winrs_2025 table4_kernels": (
        (gradient_errors, "The paper's Figure 12 on this GPU, every algorithm."),
    ),
}  # fmt: skip
for _part in (bounds, counters, devices, frontier, gradient_table, losses, variants):
    FIGURES |= _part.FIGURES
