"""What the report's figures share: colours, styles, panels, and points with intervals."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, interval

# A function that draws a table's rows, and its caption.
Drawn = tuple[Callable[[Sequence[Row]], Figure], str]
INK = "#333333"
PAPER_STYLE: dict[str, Any] = {
    "color": "black", "marker": "x", "linestyle": "none", "markersize": 7,
}  # fmt: skip
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


PHONE = 3.7  # inches that a page of 390 pixels leaves
LETTERS = 11  # of a legend, an inch
_narrow: ContextVar[bool] = ContextVar("narrow", default=False)
# Figures that a narrow page has otherwise: panels one below the other, names above their lines.
SIDE_BY_SIDE: WeakSet[Figure] = WeakSet()


@contextmanager
def narrow() -> Iterator[None]:
    """Figures drawn inside have one column of panels, as wide as a phone."""
    token = _narrow.set(True)
    try:
        yield
    finally:
        _narrow.reset(token)


def panels_of(
    rows: int,
    columns: int,
    size: tuple[float, float],
    sharey: bool = True,
    stacks: bool = True,
) -> tuple[Figure, list[Axes]]:
    """A figure of so many rows and columns of panels, and the panels row by row.

    On a narrow page they stand one below the other, unless they do not ``stacks``.
    """
    stacks = stacks and columns > 1
    if stacks and _narrow.get():
        width, height = size[0] / columns, size[1] / rows
        rows, columns = rows * columns, 1
        size = (PHONE, rows * max(2.3, height * min(1, PHONE / width)))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    if stacks and columns > 1:
        SIDE_BY_SIDE.add(figure)
    return figure, list(grid.ravel())


def lines_of(
    names: Sequence[str], size: tuple[float, float], line: float = 0.36
) -> tuple[Figure, Axes]:
    """A figure with a place a name, 0, 1, … from above, and its panel.

    Names stand left of the panel; on a narrow page above their places, which are ``line`` inches
    apart then: leave a quarter of a place free above.
    """
    figure, (panel,) = panels_of(1, 1, size)
    ends = (len(names) - 0.5, -0.5)
    if _narrow.get():
        written = [textwrap.fill(name, 46) for name in names]
        line += 0.14 * max(name.count("\n") for name in written)
        figure.set_size_inches(PHONE, line * len(names) + 1.2)
        panel.set_yticks([])
        panel.spines["left"].set_visible(False)
        across = panel.get_yaxis_transform()
        for at, name in enumerate(written):
            # beside the layout: the panel is as wide as the page, whatever its names
            panel.text(0, at - 0.2, name, transform=across, va="bottom").set_in_layout(False)
        ends = (len(names) - 0.5, -0.8)
    else:
        panel.set_yticks(range(len(names)), names)
        SIDE_BY_SIDE.add(figure)
    panel.set_ylim(*ends)
    return figure, panel


def is_narrow() -> bool:
    """Whether a narrow page is drawn for."""
    return _narrow.get()


def intervals(panel: Axes, at, values, colour: str, marker: str, label: str) -> None:
    """Points and the ends of their intervals, which need not hold them."""
    ours, low, high = (np.array(v) for v in zip(*values, strict=True))
    ends = [np.maximum(ours - low, 0), np.maximum(high - ours, 0)]
    outside = (ours < low) | (ours > high)
    ends[0][outside] = ends[1][outside] = 0
    panel.errorbar(
        at, ours, ends, fmt=marker, color=colour, markersize=4, elinewidth=1, capsize=2,
        label=label,
    )  # fmt: skip
    panel.vlines(np.array(at)[outside], low[outside], high[outside], colour, linewidth=1)


def with_legend(figure: Figure, *panels: Axes, columns: int = 3) -> Figure:
    """The figure, under it a legend of what these panels show, each name once.

    It has as many columns as the figure is wide enough for; a single one breaks its lines.
    """
    found = {}
    for panel in panels:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    names = list(found)
    for ncols in range(1 if _narrow.get() else columns, -1, -1):
        if not ncols:  # one column is too wide as well
            names = [textwrap.fill(name, int(LETTERS * figure.get_figwidth())) for name in names]
        legend = figure.legend(
            list(found.values()), names, loc="outside lower center", frameon=False,
            ncols=max(1, ncols),
        )  # fmt: skip
        if not ncols or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
    return figure


def mean(rows: Sequence[Row], metric: str) -> float:
    """The mean of a metric over rows."""
    return interval([row[metric] for row in rows])[0]


def gains(cells: Sequence[Cell]) -> Figure:
    """What policies are worth, a line each: times without over times with them, by kernel."""
    figure = by_kernel(cells, "time without over with")
    figure.axes[0].axhline(1, color=INK, linewidth=0.6)
    return figure


def by_kernel(cells: Sequence[Cell], label: str, scale: str = "linear") -> Figure:
    """Our numbers by kernel, a line a column; ``label`` says what they are, and their unit."""
    kernels = list(dict.fromkeys(c.where for c in cells))
    columns = list(dict.fromkeys(c.column for c in cells))
    size = (9, 2.8 + 0.1 * len(columns))
    if is_narrow():  # names stand almost upright below the panel
        size = (PHONE, 2.2 + 0.25 * len(columns) + 0.06 * max(map(len, kernels)))
    figure, panels = panels_of(1, 1, size)
    SIDE_BY_SIDE.add(figure)
    for column in columns:
        mine = [c for c in cells if c.column == column]
        at, values = [kernels.index(c.where) for c in mine], [c.ours for c in mine]
        panels[0].plot(at, values, "o-", markersize=4, label=column)
    panels[0].set_xticks(range(len(kernels)), kernels, rotation=60 if is_narrow() else 20)
    panels[0].set(ylabel=label, yscale=scale)
    return with_legend(figure, panels[0])
