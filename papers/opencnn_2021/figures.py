"""The report's figures of openCNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell
from experiments.report.figures import (
    INK,
    PAPER_STYLE,
    Drawn,
    lines_of,
    panels_of,
    with_legend,
)
from papers.opencnn_2021.layouts import cells_counted
from papers.opencnn_2021.machine import (
    ALGORITHMS,
    BATCHES,
    LAYERS,
    cells_figure16,
    cells_figure17,
    cells_table1,
    intensity,
)
from papers.opencnn_2021.pictures import PICTURES
from papers.opencnn_2021.policies import (
    cells_banks,
    cells_errors,
    cells_left_out,
    cells_loop,
    cells_policies,
)
from papers.opencnn_2021.speeds import AUTHORS_GPU, GPU, cells_figure15, cells_speedups
from papers.opencnn_2021.targets import cells_targets
from winolab.device import H100
from winolab.gpu.planner.device_model import MODEL

BASELINES = {"cudnn": "over cuDNN", "yan": "over Yan et al.'s layout"}
POLICIES = ("fastest policy", "sts64", "yan", "sts64_final", "compact")
THEIRS = ("the authors' optSTS64", "the authors' Yan et al.'s")


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
        panel.plot(places, [cell.ours for cell in found], "o", markersize=4, label=GPU)
        if baseline == "yan":
            theirs = [_cell(cells, f"the authors' code, N = {batch}", layer).ours
                      for layer in LAYERS for batch in BATCHES]  # fmt: skip
            panel.plot(
                places, theirs, "s", markersize=3.5, label=f"the authors' code, {AUTHORS_GPU}"
            )
        panel.plot(places, [_number(cell.paper) for cell in found], label="paper", **PAPER_STYLE)
        panel.axhline(1, color="#333333", linewidth=0.8)
        panel.set_xticks(range(0, len(found), len(BATCHES)), LAYERS, ha="left")
        panel.set_title(f"{name}, N = 32 to 128")
    panels[0].set_ylabel("speedup")
    return with_legend(figure, panels[1])


def figure15(rows: Sequence[Row]) -> Figure:
    """TFLOPS by equation 6 of the layouts, by layer and batch."""
    cells = cells_figure15(rows)
    figure, (panel,) = panels_of(1, 1, (9, 3.6))
    cases = [f"{layer}N{batch}" for layer in LAYERS for batch in BATCHES]
    for name in POLICIES:
        values = [_cell(cells, case, name).ours for case in cases]
        panel.plot(range(len(cases)), values, "o-", markersize=3, linewidth=0.8, label=name)
    for name in THEIRS:
        values = [_cell(cells, case, name).ours for case in cases]
        panel.plot(range(len(cases)), values, "s--", markersize=3, linewidth=0.8, label=name)
    panel.set_xticks(range(0, len(cases), len(BATCHES)), LAYERS, ha="left")
    panel.set_ylabel("TFLOPS, equation 6")
    panel.set_title(f"N = 32 to 128, ours on an {GPU}, theirs on an {AUTHORS_GPU}")
    return with_legend(figure, panel)


def _number(value: float | None) -> float:
    """A number as matplotlib leaves it out where there is none."""
    return np.nan if value is None else value


def _cell(cells: Sequence[Cell], where: str, column: str) -> Cell:
    return next(cell for cell in cells if (cell.where, cell.column) == (where, column))


SPEEDUPS = (
    f"Speedups of openCNN's optSTS64 layout: dots, our kernel's on an {GPU}; squares, the authors' "
    f"own builds on an {AUTHORS_GPU}; crosses, the paper's on an {{device}}. Over cuDNN ours is "
    "the fused FFMA kernel over cuDNN's fastest that runs."
)


def figure16(rows: Sequence[Row]) -> Figure:
    """The roofs of FFMA units and of L2, and blocks of 64 and 32 filters below them."""
    figure, (panel,) = panels_of(1, 1, (6.5, 3.8))
    clock = next(row["sm_mhz"] for row in rows if row.get("list") == "opencnn")
    roof = 2e-6 * H100.lanes * H100.multiprocessors * clock
    ends = np.array([1.0, 256.0])
    panel.plot(ends, np.minimum(roof, ends * MODEL.device.l2 / 1e12), color="#333333",
               label="FFMA peak; L2")  # fmt: skip
    cells = cells_figure16(rows)
    for bm, mark in ((64, "o"), (32, "s")):
        found = [c.ours for c in cells if c.column == "TFLOPS" and c.where.endswith(f"= {bm}")]
        panel.plot([intensity(bm)] * len(found), found, mark, markersize=5,
                   label=f"b_k = {bm}, Conv2 to Conv5")  # fmt: skip
    for level, mark in (("L2", "^"), ("DRAM", "v")):
        at = [c.ours for c in cells if c.column == f"FLOP a byte of {level}, counted"]
        speed = [c.ours for c in cells if c.column == "TFLOPS, counted"]
        if at:
            panel.plot(at, speed, mark, markersize=4, label=f"{level}, counted")
    panel.set_xscale("log", base=2)
    panel.set_yscale("log", base=2)
    panel.set(xlabel="FLOP a byte loaded", ylabel="TFLOPS, equation 6")
    return with_legend(figure, panel)


def figure17(rows: Sequence[Row]) -> Figure:
    """A heatmap: our fastest policy over each of cuDNN's algorithms."""
    cells = cells_figure17(rows)
    cases = [f"{layer}N{batch}" for layer in LAYERS for batch in BATCHES]
    values = np.array([[_cell(cells, name, case).ours for case in cases] for name in ALGORITHMS])
    figure, (panel,) = panels_of(1, 1, (10, 3.4), stacks=False)
    panel.pcolormesh(np.log2(values), cmap="RdYlGn", vmin=-2.5, vmax=2.5)
    for at in np.ndindex(*values.shape):
        place = at[1] + 0.5, at[0] + 0.5
        dark = "white" if values[at] > 3.5 else "black"  # where the colour is dark
        panel.text(*place, f"{values[at]:.2f}", ha="center", va="center", fontsize=7, color=dark)
    panel.grid(visible=False)
    panel.set_xticks(np.arange(len(cases)) + 0.5, cases, rotation=60, ha="right")
    panel.set_yticks(np.arange(len(ALGORITHMS)) + 0.5, list(ALGORITHMS))
    panel.invert_yaxis()
    return figure


def table1(part: str, unit: str, rows: Sequence[Row]) -> Figure:
    """Cycles or bytes a cycle of one warp and of sixteen, the paper's as crosses."""
    cells = cells_table1(part, rows)
    figure, (panel,) = panels_of(1, 1, (8, 3.6))
    names = list(dict.fromkeys(cell.where for cell in cells))
    places = range(len(names))
    for column, mark in (("one warp", "o"), ("16 warps", "s")):
        found = [_cell(cells, name, column).ours for name in names]
        panel.plot(places, found, mark, markersize=5, label=f"{GPU}, {column}")
    printed = [_number(_cell(cells, name, "one warp").paper) for name in names]
    panel.plot(places, printed, label="paper, RTX 2080 Ti", **PAPER_STYLE)
    panel.set_xticks(places, [name.replace(", ", "\n") for name in names])
    panel.set_ylabel(unit)
    panel.set_ylim(0, None)
    return with_legend(figure, panel)


def counted(rows: Sequence[Row]) -> Figure:
    """Cycles of each layout's stores and loads on either GPU's banks."""
    cells = cells_counted(rows)
    names = list(dict.fromkeys(c.where for c in cells if c.column.startswith("cycles")))
    figure, (panel,) = panels_of(1, 1, (8, 3.4))
    for column, mark in (("cycles on Turing", "o"), ("cycles on an H100", "s")):
        found = [_cell(cells, name, column).ours for name in names]
        panel.plot(range(len(names)), found, mark, markersize=5, label=column)
    panel.set_xticks(range(len(names)), names, rotation=20)
    panel.set_ylabel("cycles")
    panel.set_ylim(0, None)
    return with_legend(figure, panel)


def targets(rows: Sequence[Row]) -> Figure:
    """A panel an aim, a line across it: what each layer and batch reached."""
    cells = cells_targets(rows)
    columns = list(dict.fromkeys(c.column for c in cells))
    names = list(dict.fromkeys(c.where for c in cells))
    figure, panels = panels_of(1, len(columns), (10, 0.8 + 0.18 * len(names)))
    for panel, column in zip(panels, columns, strict=True):
        mine = [c for c in cells if c.column == column]
        panel.plot([c.ours for c in mine], [names.index(c.where) for c in mine], "o", markersize=4)
        panel.axvline(mine[0].aim or 1, color="#333333", linewidth=0.8)
        panel.set_yticks(range(len(names)), names)
        panel.set(xlabel=column, ylim=(len(names) - 0.5, -0.5))
        panel.set_xlim(0, 1.05 * panel.get_xlim()[1])
    return figure


def dots(
    cells_of: Callable[[Sequence[Row]], list[Cell]], wanted: str, label: str, rows: Sequence[Row]
) -> Figure:
    """What the cells of columns that have ``wanted`` in their names are, a series a column."""
    cells = [c for c in cells_of(rows) if wanted in c.column]
    places = {where: i for i, where in enumerate(dict.fromkeys(c.where for c in cells))}
    figure, panel = lines_of(list(places), (9, 1.2 + 0.22 * len(places)))
    for column in dict.fromkeys(c.column for c in cells):
        mine = [c for c in cells if c.column == column]
        values = [c.ours for c in mine]
        panel.plot(values, [places[c.where] for c in mine], "o", markersize=4, label=column)
    panel.set_xlabel(label)
    return with_legend(figure, panel)


def loop(rows: Sequence[Row]) -> Figure:
    """A line a layer and batch, a dot a precision: gains of the loop over today's choice."""
    cells = [c for c in cells_loop(rows) if c.column == "gain"]
    split = [(*c.where.split(", ", 1), c.ours) for c in cells]
    layers = list(dict.fromkeys(layer for _, layer, _ in split))
    figure, panel = lines_of(layers, (9, 1.2 + 0.22 * len(layers)))
    for precision in dict.fromkeys(precision for precision, _, _ in split):
        mine = [(gain, layers.index(layer)) for name, layer, gain in split if name == precision]
        name = precision.replace("_", " ")
        panel.plot(*zip(*mine, strict=True), "o", markersize=4, label=name)
    panel.axvline(1, color=INK, linewidth=0.8)
    panel.set_xlabel("time of today's choice over the loop's")
    return with_legend(figure, panel)


FIGURES: dict[str, tuple[Drawn, ...]] = {
    "opencnn_2021 steps": (
        (
            partial(dots, cells_left_out, "", "share of the ceiling"),
            "Shares of the ceiling, whole and without a step.",
        ),
    ),
    "opencnn_2021 policies": (
        (
            partial(dots, cells_policies, "", "speed over the kernel without"),
            "Speeds of policies over the kernel without, means of batches.",
        ),
    ),
    "opencnn_2021 banks": (
        (
            partial(dots, cells_banks, "conflicts a work tile", "conflicts"),
            "Bank conflicts of a work tile.",
        ),
    ),
    "opencnn_2021 errors": (
        (
            partial(dots, cells_errors, "over the", "ratio"),
            "Errors over prediction and simulation.",
        ),
    ),
    "opencnn_2021 loop": (
        (
            loop,
            "Time of today's choice over that of the wgmma loop; right of the line the loop is the "
            "faster.",
        ),
    ),
    **PICTURES,
    "opencnn_2021 counted": (
        (counted, "Cycles of stores and loads of each layout of the output, by the banks' model."),
    ),
    "opencnn_2021 targets": (
        (targets, f"What the fused kernel reached on an {GPU}; lines: what it was to reach."),
    ),
    "opencnn_2021 table3": ((partial(speedups, 3), SPEEDUPS.format(device="RTX 2080 Ti")),),
    "opencnn_2021 table4": ((partial(speedups, 4), SPEEDUPS.format(device="RTX 3090")),),
    "opencnn_2021 table1a": (
        (
            partial(table1, "a", "cycles"),
            "Cycles from one access of shared memory to the next of a multiprocessor.",
        ),
    ),
    "opencnn_2021 table1b": (
        (
            partial(table1, "b", "bytes a cycle"),
            "Throughput of shared memory; the last by half of the lanes, as Yan et al.'s.",
        ),
    ),
    "opencnn_2021 figure16": (
        (figure16, "Products of a block over the bytes it loads, N = 128, layout optSTS64."),
    ),
    "opencnn_2021 figure17": (
        (figure17, f"Speed of our fastest policy over cuDNN's algorithms on an {GPU}, FP32."),
    ),
    "opencnn_2021 figure15": (
        (figure15, "Output layouts beside each other; the fastest policy loads pixels ahead."),
    ),
}
