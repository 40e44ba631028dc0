"""The report's figures of WinRS."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

from experiments.harness.jobs import Row
from experiments.harness.tables import select
from papers.winrs_2025.grid import series


def frontier(rows: Sequence[Row]) -> Figure:
    """Predicted time against workspace, a panel a layer."""
    figure = Figure(figsize=(9, 3), layout="constrained")
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    for panel, layer in zip(figure.subplots(1, len(layers)), layers, strict=True):
        for device, colour in (("rtx4090", "#4c72b0"), ("h100", "#dd8452")):
            mine = select(rows, layer=layer, planned_for=device)
            swept = sorted(
                (r["workspace_mib"], r["predicted_ms"]) for r in select(mine, planned=False)
            )
            panel.plot(*zip(*swept, strict=True), "o-", color=colour, markersize=3, label=device)
            (chosen,) = select(mine, planned=True)
            panel.plot(chosen["workspace_mib"], chosen["predicted_ms"], "*", color=colour, ms=12)
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
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    panels = figure.subplots(1, len(kernels), sharey=True)
    for panel, kernel in zip(panels, kernels, strict=True):
        for name in dict.fromkeys(row["variant"] for row in rows):
            mine = sorted(
                (r["accumulation"], r["mare"]) for r in select(rows, kernel=kernel, variant=name)
            )
            panel.plot(*zip(*mine, strict=True), "o-", markersize=4, label=name)
        panel.set(title=kernel, xlabel="products summed, N·O_H·O_W", xscale="log", yscale="log")
    panels[0].set_ylabel("mean relative error")
    panels[0].legend()
    return figure


FIGURES: dict[str, tuple[tuple[Callable[[Sequence[Row]], Figure], str], ...]] = {
    "winrs_2025 figure9": (
        (workspace, "Workspace, gradient and segments of 3×3 layers of equal work."),
    ),
    "winrs_2025 figure12": (
        (switches, "FP16 sums, U[0,1]: what segments, scaling and Kahan's sum are worth."),
    ),
    "winrs_2025 frontier": (
        (frontier, "Predicted time against workspace. Stars: the planner's choice."),
    ),
}
