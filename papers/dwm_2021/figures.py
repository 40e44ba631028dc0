"""The report's figures of DWM."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from experiments.harness.jobs import Row
from experiments.harness.tables import Table, select
from experiments.report.figures import Drawn, lines_of, mean, panels_of, with_legend
from papers.dwm_2021 import frontier, ranges, speeds

STYLES = {"fp32": "-", "fp16": "--"}
COLOURS = {"direct": "#55a868", "winograd": "#c44e52", "dwm": "#4c72b0"}
NAMES = {"direct": "direct", "winograd": "Winograd", "dwm": "DWM"}


def errors(rows: Sequence[Row]) -> Figure:
    """Tables 1 and 2: mean squared error over the kernel, a panel a setting."""
    return _errors(rows, "setting", "kernel", "taps a dimension")


def dimensions(rows: Sequence[Row]) -> Figure:
    """Table 7: mean squared error over the number of dimensions, a panel a kernel."""
    return _errors(rows, "kernel", "ndim", "dimensions")


def _errors(rows: Sequence[Row], panel_by: str, along: str, label: str) -> Figure:
    titles = list(dict.fromkeys(row[panel_by] for row in rows))
    figure, panels = panels_of(1, len(titles), (4.6 * len(titles), 3.6))
    for panel, title in zip(panels, titles, strict=True):
        for column in dict.fromkeys(row["column"] for row in rows):
            mine = select(rows, column=column, **{panel_by: title})
            at = sorted({row[along] for row in mine})
            name, precision = column.split()
            panel.plot(
                at, [_mse(select(mine, **{along: x})) for x in at], STYLES[precision],
                color=COLOURS[name], marker=".", label=f"{NAMES[name]} {precision.upper()}",
            )  # fmt: skip
        panel.set_yscale("log")
        panel.set(title=title if isinstance(title, str) else f"{title} taps", xlabel=label)
        panel.set_xticks(at)
    panels[0].set_ylabel("mean squared error")
    return with_legend(figure, panels[0])


def _mse(rows: Sequence[Row]) -> float:
    """The mean over settings and seeds; NaN where FP16 overflows."""
    return math.nan if any(row["mse"] is None for row in rows) else mean(rows, "mse")


def savings(rows: Sequence[Row]) -> Figure:
    """Tables 3 and 4: direct's multiplications over an algorithm's, a panel a stride."""
    names = list(dict.fromkeys(row["column"] for row in rows if row["where"] != "claim"))
    figure, panels = panels_of(1, 2, (9.2, 3.6))
    for stride, panel in enumerate(panels, 1):
        for name in names:
            mine = [
                (int(row["where"].split(", ")[1].split()[0]), row["ours"])
                for row in select(rows, column=name)
                if row["where"].endswith(f"stride {stride}")
            ]
            if mine:
                panel.plot(*zip(*sorted(mine), strict=True), marker="o", markersize=4, label=name)
        panel.set(title=f"stride {stride}", xlabel="taps a dimension")
        panel.axhline(1, color="#333333", linewidth=0.8)
    panels[0].set_ylabel("times fewer multiplications")
    return with_legend(figure, panels[0])


def measured(table: Table, rows: Sequence[Row]) -> Figure:
    """What a GPU measured for a table, a line a case, a mark a column; claims are left out."""
    cells = [c for c in table.cells(rows) if not c.claim]
    names = list(dict.fromkeys(c.where for c in cells))
    figure, panel = lines_of(names, (8, 1.4 + 0.2 * len(names)))
    for i, column in enumerate(dict.fromkeys(c.column for c in cells)):
        mine = [(c.ours, names.index(c.where)) for c in cells if c.column == column]
        panel.plot(*zip(*mine, strict=True), "os^vD*x+"[i % 8], markersize=4, label=column)
    panel.set_xscale("log")
    return with_legend(figure, panel)


def lost(rows: Sequence[Row]) -> Figure:
    """FP16 on a GPU: the relative RMS of a network's kinds of layers, their geometric mean."""
    names = list(dict.fromkeys(row["network"] for row in rows))
    figure, panel = lines_of(names, (8, 1.4 + 0.3 * len(names)))
    for i, column in enumerate(dict.fromkeys(row["column"] for row in rows)):
        mine = {name: select(rows, network=name, column=column) for name in names}
        found = {name: [r["relative_rms"] for r in some if r["relative_rms"]]
                 for name, some in mine.items()}  # fmt: skip
        at = [(statistics.geometric_mean(v), names.index(k)) for k, v in found.items() if v]
        panel.plot(*zip(*at, strict=True), "os^vD"[i % 5], markersize=4, label=column)
    panel.set_xscale("log")
    panel.set_xlabel("relative RMS")
    return with_legend(figure, panel)


FIGURES: dict[str, tuple[Drawn, ...]] = {
    ranges.MEASURED.key: (
        (lost, "What FP16 loses on a GPU: the geometric mean of a network's kinds of layers."),
    ),
    **{
        table.key: ((partial(measured, table), "As a GPU measured it; its name is in the rows."),)
        for table in speeds.TABLES
    },
    "dwm_2021 table1": (
        (errors, "Mean squared errors of 2-D convolutions. The paper's numbers did not survive."),
    ),
    "dwm_2021 table2": (
        (errors, "Mean squared errors of 3-D convolutions. The paper's numbers did not survive."),
    ),
    "dwm_2021 table3": (
        (savings, "Direct convolution's multiplications over each algorithm's, in 2-D."),
    ),
    "dwm_2021 table4": (
        (savings, "Direct convolution's multiplications over each algorithm's, in 3-D."),
    ),
    "dwm_2021 table7": (
        (dimensions, "Mean squared errors over the number of dimensions, one channel."),
    ),
    frontier.FRONTIER.key: (
        (
            frontier.figure,
            "Lines: predicted along the front. Crosses: measured. Circles: DWM's own choice.",
        ),
    ),
}
