"""The report's figures of WinRS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments.harness.facts import table
from experiments.harness.jobs import Row
from experiments.harness.tables import select
from experiments.report.figures import PAPER_STYLE, Drawn, gains, panels_of, with_legend
from papers.winrs_2025.grid import PAPER, series
from papers.winrs_2025.kernels import cells_ablations
from papers.winrs_2025.measure import recorded
from papers.winrs_2025.measure import tables as measured

PEERS = {"gemm": ("GEMM", "#55a868"), "fft": ("FFT", "#8172b3"),
         "winograd": ("Winograd", "#dd8452")}  # fmt: skip


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
    **measured.FIGURES,
    **recorded.FIGURES,
    "winrs_2025 frontier": (
        (frontier, "Predicted time against workspace. Stars: the planner's choice."),
    ),
}
