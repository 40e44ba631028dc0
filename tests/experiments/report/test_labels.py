"""Labels lie in their panel, on no point and on no other label."""

from __future__ import annotations

import itertools

import pytest
from matplotlib.axes import Axes
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from experiments.gpu import counters, frontier
from experiments.harness.tables import rows_of
from experiments.report import figures
from experiments.report.labels import Label, label


def written(panel: Axes) -> list[Annotation]:
    return [text for text in panel.texts if isinstance(text, Annotation)]


def boxes_of(panel: Axes) -> list[Bbox]:
    """Places of the labels' texts, without the lines that lead to them."""
    return [Text.get_window_extent(text) for text in written(panel)]


CLOSE = [(1 + 0.01 * i, 1 + 0.02 * (i % 3)) for i in range(9)]
CORNERS = [(0.0, 0.0), (2.0, 2.0), (0.0, 2.0), (2.0, 0.0)]


@pytest.mark.parametrize("points", [CLOSE, CORNERS])
def test_labels_stand_apart_in_their_panel(points: list[tuple[float, float]]) -> None:
    figure, (panel,) = figures.panels_of(1, 1, (5, 4))
    panel.plot(*zip(*points, strict=True), "o")
    panel.set(xlim=(0, 2), ylim=(0, 2))
    label(figure, [Label(panel, at, f"name {i}", "red") for i, at in enumerate(points)],
          [(panel, at) for at in points])  # fmt: skip
    figure.draw_without_rendering()
    boxes = boxes_of(panel)
    assert len(boxes) == len(points)
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for box in boxes:
        assert panel.bbox.x0 - 1 <= box.x0 < box.x1 <= panel.bbox.x1 + 1
        assert panel.bbox.y0 - 1 <= box.y0 < box.y1 <= panel.bbox.y1 + 1
        assert not any(box.contains(*panel.transData.transform(at)) for at in points)


def test_a_line_leads_to_labels_that_are_far() -> None:
    figure, (panel,) = figures.panels_of(1, 1, (5, 4))
    points = [(1.0, 1.0)] * 10
    label(figure, [Label(panel, at, "name", "red") for at in points], [])
    shown = [text.arrow_patch.get_visible() for text in written(panel) if text.arrow_patch]
    assert shown[0] is False
    assert any(shown)


@pytest.mark.parametrize(
    ("table", "draw"),
    [(frontier.FRONTIER, frontier.frontier), (counters.COUNTERS, counters.roofline)],
)
def test_labels_of_kept_rows_do_not_overlap(table, draw) -> None:
    figure = draw(rows_of(table))
    figure.draw_without_rendering()
    for panel in figure.axes:
        boxes = boxes_of(panel)
        for one, other in itertools.combinations(boxes, 2):
            across = min(one.x1, other.x1) - max(one.x0, other.x0)
            up = min(one.y1, other.y1) - max(one.y0, other.y0)
            assert min(across, up) <= 1  # pixel


def test_names_of_plans_do_not_overlap() -> None:
    figure = counters.utilisation(rows_of(counters.COUNTERS))
    figure.draw_without_rendering()
    boxes = [name.get_window_extent() for name in figure.axes[0].get_yticklabels()]
    assert len(boxes) > 50
    for above, below in itertools.pairwise(boxes):
        assert above.y0 >= below.y1
    widths = [panel.bbox.width / len(panel.get_xticks()) for panel in figure.axes]
    assert min(widths) >= 25  # pixels of a cell: it had ten
    with figures.narrow():
        slim = counters.utilisation(rows_of(counters.COUNTERS))
    slim.draw_without_rendering()
    for text in slim.axes[0].texts:
        assert text.get_window_extent().x1 <= slim.bbox.x1
