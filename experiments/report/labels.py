"""Labels beside points, where neither points nor other labels are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

RADIUS = 4.0  # points of a marker, with what keeps labels off it
FAR = 14.0  # points from which on a line leads to the label
DISTANCES = (7.0, 14.0, 24.0, 36.0, 50.0)  # of a label's nearest edge, in points
ANGLES = tuple(math.radians(a) for a in (-45, 45, 135, -135, 0, 90, -90, 180))

Place = tuple[float, float, float, float]  # left, low, right and high end, in pixels


@dataclass(frozen=True)
class Label:
    """A text for a point of a panel."""

    panel: Axes
    at: tuple[float, float]
    text: str
    colour: str | tuple[float, ...]


def label(
    figure: Figure,
    labels: Sequence[Label],
    marks: Sequence[tuple[Axes, tuple[float, float]]],
    size: float = 9,
) -> None:
    """Write the labels, each at the nearest place inside its panel that overlaps least.

    Limits of axes have to stand, and what takes place from the panels to be drawn.
    """
    figure.draw_without_rendering()  # panels have their places from here on
    scale = figure.dpi / 72
    taken: dict[Axes, list[Place]] = {}
    for panel, at in marks:
        x, y = panel.transData.transform(at)
        r = RADIUS * scale
        taken.setdefault(panel, []).append((x - r, y - r, x + r, y + r))
    for one in labels:
        text = one.panel.annotate(
            one.text, one.at, xytext=(0, 0), textcoords="offset points", color=one.colour,
            fontsize=size, ha="center", va="center",
            arrowprops={"arrowstyle": "-", "color": one.colour, "linewidth": 0.5, "shrinkB": 3},
        )  # fmt: skip
        text.set_in_layout(False)
        extent = text.get_window_extent()
        half = extent.width / 2, extent.height / 2
        x, y = one.panel.transData.transform(one.at)
        others = taken.setdefault(one.panel, [])
        places = [
            (distance, _place((x, y), half, distance * scale, angle))
            for distance in DISTANCES
            for angle in ANGLES
        ]
        costs = _costs([place for _, place in places], one.panel.bbox, others).round()
        distance, best = places[costs.argmin()]  # the nearest of equal ones
        x0, y0, x1, y1 = best
        text.set_position((((x0 + x1) / 2 - x) / scale, ((y0 + y1) / 2 - y) / scale))
        if distance < FAR and text.arrow_patch:
            text.arrow_patch.set_visible(False)
        others.append(best)


def _place(
    at: tuple[float, float], half: tuple[float, float], distance: float, angle: float
) -> Place:
    """Where a label of half this width and height is, so far from its point, in pixels."""
    way = math.cos(angle), math.sin(angle)
    x, y = (
        where + part * distance + (math.copysign(size, part) if abs(part) > 0.1 else 0)
        for where, size, part in zip(at, half, way, strict=True)
    )
    return x - half[0], y - half[1], x + half[0], y + half[1]


def _costs(places: Sequence[Place], panel: Bbox, others: Sequence[Place]) -> np.ndarray:
    """Square pixels of each that others have as well; those outside the panel count four times."""
    boxes, taken = np.array(places), np.array(others).reshape(-1, 4)
    outside = (boxes[:, 2:] - boxes[:, :2]).prod(-1) - _shared(boxes, np.array(panel.extents))
    return _shared(boxes[:, None], taken).sum(-1) + 4 * outside


def _shared(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Square pixels in both."""
    sides = np.minimum(one[..., 2:], other[..., 2:]) - np.maximum(one[..., :2], other[..., :2])
    return np.maximum(sides, 0).prod(-1)
