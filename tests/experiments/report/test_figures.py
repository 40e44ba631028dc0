"""Figures draw what rows may hold."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.gpu import figures as gpu_figures
from experiments.gpu.targets import table as gpu_targets
from experiments.harness.tables import rows_of
from experiments.report.figures import intervals, lines_of
from experiments.report.svg import legible
from papers.opencnn_2021 import figures as opencnn_figures
from papers.opencnn_2021.targets import TARGETS, cells_targets
from tests.experiments import gpu_rows


@pytest.mark.parametrize("ours", [1.0, 0.25, 3.0])
def test_a_point_need_not_lie_in_its_interval(ours: float) -> None:
    """A layer's maximum beside the interval of another layer's: Lavin & Gray, Table 4."""
    figure, panel = plt.subplots()
    intervals(panel, [0], [(ours, 0.5, 2.0)], "C0", "o", "ours")
    drawn = [end for c in panel.collections for s in c.get_segments() for _, end in s.tolist()]  # type: ignore[attr-defined]
    plt.close(figure)
    assert {0.5, 2.0} <= set(drawn)


@pytest.mark.parametrize("ends", [(0.82, 2.1), (3e-5, 5e-4), (1.2e-5, 1.8e-5), (2, 9), (1e-7, 1)])
def test_an_axis_has_two_labels(ends: tuple[float, float]) -> None:
    """One power or none was within the axes of eight tables, and nothing else had a label."""
    figure, panel = lines_of(["low", "high"], (5, 2))
    panel.plot(ends, [0, 1], "o")
    panel.set_xscale("log")
    legible(figure)
    figure.canvas.draw()
    low, high = panel.get_xlim()
    ticks = zip(panel.get_xticks(), panel.get_xticklabels(), strict=True)
    shown = {text.get_text() for at, text in ticks if low <= at <= high} - {""}
    assert len(shown) >= 2
    assert not any("e" in text for text in shown)


def test_every_place_of_a_panel_has_its_name() -> None:
    """Panels that share an axis had the names of the last one's four places."""
    rows = rows_of(TARGETS)
    panels = opencnn_figures.targets(rows).axes
    names = [label.get_text() for label in panels[0].get_yticklabels()]
    for panel in panels:
        mine = [c for c in cells_targets(rows) if c.column == panel.get_xlabel()]
        points = [(x, names[round(y)]) for x, y in np.array(panel.lines[0].get_xydata()).tolist()]
        assert points == [(c.ours, c.where) for c in mine]
        assert all(x < panel.get_xlim()[1] for x, _ in points)


def test_an_aim_s_number_stands_beside_its_point() -> None:
    """On a narrow page the axis stood five thousand pixels below the first line."""
    rows = [*gpu_rows.throughput(), *gpu_rows.errors(), *gpu_rows.host(), *gpu_rows.sanitizer()]
    (panel,) = gpu_figures.reached(gpu_targets.cells, rows).axes
    drawn = [line for line in panel.lines if line.get_marker() == "o"]
    points = [float(np.array(line.get_xdata())[0]) for line in drawn]
    assert [f"{share:.3g}" for share in points] == [text.get_text() for text in panel.texts]
    assert len(points) > 20
    assert panel.xaxis.get_tick_params()["labeltop"]
