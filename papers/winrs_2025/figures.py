"""The report's figures of WinRS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments.gpu.figures import OURS, Who, lines_over
from experiments.gpu.rows import GRADIENT_KINDS, gradients, paper_alpha
from experiments.harness.facts import table
from experiments.harness.jobs import Row
from experiments.harness.tables import select
from experiments.report.figures import INK, PAPER_STYLE, Drawn, gains, panels_of, with_legend
from papers.winrs_2025.grid import PAPER, series
from papers.winrs_2025.kernels import cells_ablations
from papers.winrs_2025.measure import recorded, training
from papers.winrs_2025.measure import tables as measured

PEERS = {"gemm": ("GEMM", "#55a868"), "fft": ("FFT", "#8172b3"),
         "winograd": ("Winograd", "#dd8452")}  # fmt: skip
GRADIENTS: Who = {
    "cuDNN GEMM class": (lambda c: c.cudnn(*GRADIENT_KINDS["gemm"]), "#55a868", "s"),
    "cuDNN FFT": (lambda c: c.cudnn(*GRADIENT_KINDS["fft"]), "#8172b3", "^"),
    "cuDNN Winograd": (lambda c: c.cudnn(*GRADIENT_KINDS["winograd"]), "#dd8452", "p"),
    "PyTorch": (lambda c: c.fastest(lambda r: (r["method"], r["products"]) == ("torch", c.group)),
                "#937860", "v"),
}  # fmt: skip


def frontier(rows: Sequence[Row]) -> Figure:
    """Predicted time against workspace, a panel a layer."""
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    figure, panels = panels_of(1, len(layers), (9, 3), sharey=False)
    for panel, layer in zip(panels, layers, strict=True):
        for device, colour in (("rtx4090", "#4c72b0"), ("h100", "#dd8452")):
            mine = select(rows, layer=layer, planned_for=device)
            swept = sorted(
                (r["workspace_mib"], r["predicted_us"] / 1e3) for r in select(mine, planned=False)
            )
            panel.plot(*zip(*swept, strict=True), "o-", color=colour, markersize=3, label=device)
            (chosen,) = select(mine, planned=True)
            at = chosen["workspace_mib"], chosen["predicted_us"] / 1e3
            panel.plot(*at, "*", color=colour, ms=12)
        panel.set(title=layer, xlabel="workspace, MiB", ylabel="predicted time, ms")
        panel.set_ylim(bottom=0)
        panel.legend()
    return figure


def workspace(rows: Sequence[Row]) -> Figure:
    """Figure 9's kind: workspace and gradient on the left, segments on the right."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    left = figure.subplots()
    right = left.twinx()
    right.grid(visible=False)
    chosen = list(series(rows))
    at = range(len(chosen))
    left.bar([i - 0.2 for i in at], [r["workspace_mib"] for r in chosen], 0.4, color="#4c72b0")
    left.bar([i + 0.2 for i in at], [r["gradient_mib"] for r in chosen], 0.4, color="#bbbbbb")
    right.plot(list(at), [r["segments"] for r in chosen], "o-", color="#dd8452")
    left.set_xticks(list(at), [r["layer"] for r in chosen], rotation=20)
    left.set_ylabel("MiB: workspace (blue), gradient (grey)")
    right.set_ylabel("segments")
    right.set_yscale("log", base=2)
    return figure


def switches(rows: Sequence[Row]) -> Figure:
    """Figure 12's kind: error against accumulation length, a line a remedy switched off."""
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    figure, panels = panels_of(1, len(kernels), (9, 3.5))
    for panel, kernel in zip(panels, kernels, strict=True):
        for name in dict.fromkeys(row["variant"] for row in rows):
            mine = sorted(
                (r["accumulation"], r["mare"]) for r in select(rows, kernel=kernel, variant=name)
            )
            panel.plot(*zip(*mine, strict=True), "o-", markersize=4, label=name)
        panel.set(title=kernel, xlabel="products summed, N·O_H·O_W", xscale="log", yscale="log")
    panels[0].set_ylabel("mean relative error")
    return with_legend(figure, panels[0])


def speedups(rows: Sequence[Row]) -> Figure:
    """Table 3: average speedups over cuDNN's algorithms, modelled, the paper's as crosses."""
    printed = table(PAPER, 3)["rows"]
    kinds = list(dict.fromkeys((line["device"], line["precision"]) for line in printed))
    across = -(-len(kinds) // 2)
    figure, panels = panels_of(2, across, (3.6 * across, 6.4), sharey=True)
    for panel, (device, precision) in zip(panels, kinds, strict=False):
        lines = select(printed, device=device, precision=precision)
        for algorithm, (name, colour) in PEERS.items():
            taps = [line["filter"] for line in lines if algorithm in line]
            ours = [
                select(rows, planned_for=device, precision=precision, taps=t, algorithm=algorithm)[
                    0
                ]["speedup"][0]
                for t in taps
            ]
            if not taps:
                continue
            panel.plot(taps, ours, color=colour, marker=".", label=f"over {name}, model")
            paper = [line[algorithm][0] for line in lines if algorithm in line]
            style: dict[str, Any] = PAPER_STYLE | {"color": colour}
            panel.plot(taps, paper, **style, label="paper")
        panel.set_title(f"{device}, {precision.upper()}")
        panel.set_xlabel("taps a dimension")
    for panel in panels[len(kinds) :]:
        panel.set_axis_off()
    for panel in panels[::across]:
        panel.set_ylabel("average speedup")
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
        lines_over(panel, mine, who | GRADIENTS)
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


FIGURES: dict[str, tuple[Drawn, ...]] = {
    "winrs_2025 table3": (
        (
            speedups,
            "Average speedup of WinRS over cuDNN's algorithms: lines are the timing model, "
            "with two constants an algorithm fitted; crosses are the paper.",
        ),
    ),
    "winrs_2025 figure9": (
        (workspace, "Workspace, gradient and segments of 3×3 layers of equal work."),
    ),
    "winrs_2025 figure12": (
        (switches, "FP16 sums, U[0,1]: what segments, scaling and Kahan's sum are worth."),
    ),
    "winrs_2025 ablations_kernels": (
        (
            lambda rows: gains(cells_ablations(rows)),
            "Fused Ω in FP16: time without a policy over time with it, by kernel.",
        ),
    ),
    "winrs_2025 figure12_kernels": (
        (
            lambda rows: switches(measured.measured(rows)),
            "FP16 sums on a GPU, U[0,1]: what segments, scaling and Kahan's sum are worth.",
        ),
    ),
    "winrs_2025 table2_kernels": (
        (gradient_workspace, "Workspace against channels. Dashed: the paper's average."),
    ),
    "winrs_2025 table3_kernels": ((gradient_speeds, "The paper's Figures 10 and 11 on this GPU."),),
    "winrs_2025 table4_kernels": (
        (gradient_errors, "The paper's Figure 12 on this GPU, every algorithm."),
    ),
    **measured.FIGURES,
    **recorded.FIGURES,
    **training.FIGURES,
    "winrs_2025 frontier": (
        (frontier, "Predicted time against workspace. Stars: the planner's choice."),
    ),
}
