"""The report's figures of the study of interpolation points."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.harness.jobs import Row
from experiments.harness.tables import select
from experiments.points import tables as points_study
from experiments.report.figures import (
    COLOURS,
    INK,
    KINDS,
    METRICS,
    Drawn,
    intervals,
    mean,
    panels_of,
    with_legend,
)


def rows_gain(rows: Sequence[Row]) -> Figure:
    """A panel a kind of data: error over that of the best points, every tile."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    figure, panels = panels_of(2, 3, (11, 6.4))
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
            intervals(
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
    return with_legend(figure, panels[0])


def layers_gain(rows: Sequence[Row]) -> Figure:
    """Errors of 9 × 9 filters over channels, positive and zero-mean data."""
    figure, panels = panels_of(1, 2, (9, 3.6), sharey=False)
    names = list(dict.fromkeys(row["variant"] for row in rows))
    colours = dict(zip(names, ("exact", "program", "best", "direct", "typed"), strict=True))
    for panel, kind in zip(panels, ("u12", "u11"), strict=True):
        metric = points_study.metric_of(kind)
        for name in names:
            values = [
                mean(select(rows, kind=kind, variant=name, width=str(c)), metric)
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
    return with_legend(figure, panels[0])


FIGURES: dict[str, tuple[Drawn, ...]] = {
    "points rows": ((rows_gain, "Error over that of the best points; above 1 the best win."),),
    "points layers": ((layers_gain, "9 × 9 filters: the gain on U[1,2] fades with channels."),),
}


def _tile(where: str) -> str:
    alpha, rest = where.removeprefix("Γ").split("(")
    n, r = rest.split(")")[0].split(",")
    return f"gamma:{alpha}:{n}:{r}"


def _label(text: str) -> str:
    _, alpha, n, r = text.split(":")
    return f"Γ{alpha}({n},{r})"
