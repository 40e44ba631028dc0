"""The report's figures of openCNN."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell
from experiments.report.figures import PAPER_STYLE, Drawn, panels_of, with_legend
from papers.opencnn_2021.layouts import figures5to8
from papers.opencnn_2021.speeds import cells_figure15, cells_speedups

LAYERS = ("Conv2", "Conv3", "Conv4", "Conv5")
BATCHES = (32, 64, 96, 128)
BASELINES = {"cudnn": "over cuDNN", "yan": "over Yan et al.'s layout"}
POLICIES = ("fastest policy", "sts64", "yan", "sts64_final", "compact")


def speedups(number: int, rows: Sequence[Row]) -> Figure:
    """A panel a baseline: speedups by layer and batch, ours and the paper's."""
    cells = cells_speedups(number, rows)
    figure, panels = panels_of(1, 2, (9, 3.6))
    for panel, (baseline, name) in zip(panels, BASELINES.items(), strict=True):
        found = [
            _cell(cells, f"over {baseline}, N = {batch}", layer)
            for layer in LAYERS
            for batch in BATCHES
        ]
        places = range(len(found))
        panel.plot(places, [cell.ours for cell in found], "o", markersize=4, label="H100")
        panel.plot(places, [cell.paper for cell in found], label="paper", **PAPER_STYLE)
        panel.axhline(1, color="#333333", linewidth=0.8)
        panel.set_xticks(range(0, len(found), len(BATCHES)), LAYERS, ha="left")
        panel.set_title(f"{name}, N = 32 to 128")
    panels[0].set_ylabel("speedup")
    return with_legend(figure, panels[0])


def figure15(rows: Sequence[Row]) -> Figure:
    """TFLOPS by equation 6 of the layouts, by layer and batch."""
    cells = cells_figure15(rows)
    figure, (panel,) = panels_of(1, 1, (9, 3.6))
    cases = [f"{layer}N{batch}" for layer in LAYERS for batch in BATCHES]
    for name in POLICIES:
        values = [_cell(cells, case, name).ours for case in cases]
        panel.plot(range(len(cases)), values, "o-", markersize=3, linewidth=0.8, label=name)
    panel.set_xticks(range(0, len(cases), len(BATCHES)), LAYERS, ha="left")
    panel.set_ylabel("TFLOPS, equation 6")
    panel.set_title("N = 32 to 128, an H100")
    return with_legend(figure, panel)


def _cell(cells: Sequence[Cell], where: str, column: str) -> Cell:
    return next(cell for cell in cells if (cell.where, cell.column) == (where, column))


SPEEDUPS = (
    "Speedups of openCNN's optSTS64 layout: dots, our kernel's on an H100; crosses, the paper's on "
    "an {device}. Over cuDNN ours is the fused FFMA kernel over cuDNN's fastest that runs."
)
FIGURES: dict[str, tuple[Drawn, ...]] = {
    "opencnn_2021 layouts": (
        (
            figures5to8,
            "Which lane of a warp stores which word of a state's buffer in the first round, eight "
            "rows of 128 bytes: Yan et al.'s layout, the paper's three, one that a search found.",
        ),
    ),
    "opencnn_2021 table3": ((partial(speedups, 3), SPEEDUPS.format(device="RTX 2080 Ti")),),
    "opencnn_2021 table4": ((partial(speedups, 4), SPEEDUPS.format(device="RTX 3090")),),
    "opencnn_2021 figure15": (
        (figure15, "Output layouts beside each other; the fastest policy loads pixels ahead."),
    ),
}
