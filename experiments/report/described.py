"""A figure in words, from what is drawn: for those who do not see it, and to compare two of them.

Two figures of the same data have the same words, whatever draws their pixels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure

NAMED = 8  # of those who are drawn: a sentence is heard in one go


def alternative(figure: Figure) -> str:
    """A sentence or two: what the panels are, their axes, and who is drawn.

    >>> figure = Figure()
    >>> panel = figure.subplots()
    >>> _ = panel.set(title="Γ8", xlabel="channels", ylabel="error")
    >>> _ = panel.plot([1, 2], label="paper")
    >>> alternative(figure)
    'Γ8: error against channels. Drawn: paper.'
    """
    panels = [panel for panel in figure.axes if panel.axison]
    titles = [title for panel in panels if (title := _flat(panel.get_title()))]
    pairs = [(_flat(panel.get_xlabel()), _flat(panel.get_ylabel())) for panel in panels]
    whole = [pair for pair in pairs if all(pair)] or pairs  # inner panels share their axes
    axes = dict.fromkeys(f"{y} against {x}" if x and y else x or y for x, y in whole)
    who = dict.fromkeys(
        name for panel in panels for name in panel.get_legend_handles_labels()[1] if name
    )
    count = f"{len(titles)} panels ({'; '.join(titles)})" if len(titles) > 1 else "".join(titles)
    head = ": ".join(filter(None, (count, "; ".join(filter(None, axes)))))
    names = list(who)[:NAMED] + ([f"{len(who) - NAMED} more"] if len(who) > NAMED else [])
    return ". ".join(filter(None, (head, "Drawn: " + ", ".join(names) if who else ""))) + "."


def described(figure: Figure) -> str:
    """Every panel with its series: how many points, and where they lie."""
    lines = ["Figure"]
    for panel in figure.axes:
        if panel.axison:
            names = (panel.get_title(), panel.get_xlabel(), panel.get_ylabel())
            lines.append("  panel " + ", ".join(_flat(name) or "-" for name in names))
            lines += [f"    {line}" for line in _series(panel)]
    return "\n".join(lines)


def _series(panel: Axes) -> Iterator[str]:
    """Who has a name by it, all others together: dots and lines may be thousands."""
    found: dict[str, list[np.ndarray]] = {}
    for line in panel.lines:
        found.setdefault(_name(line), []).append(np.asarray(line.get_xydata(), float))
    for drawn in panel.collections:
        if isinstance(drawn, PathCollection):
            found.setdefault(_name(drawn), []).append(np.asarray(drawn.get_offsets(), float))
        elif isinstance(drawn, QuadMesh):
            values = np.asarray(drawn.get_array(), float).ravel()
            yield f"field: {len(values)} values, {_range(values)}"
    for name, points in found.items():
        yield _told(name, np.concatenate(points))
    for image in panel.images:
        values = np.asarray(image.get_array(), float).ravel()
        yield f"image: {len(values)} values, {_range(values)}"
    if panel.patches:
        yield f"patches: {len(panel.patches)}"
    if panel.texts:
        yield f"texts: {len(panel.texts)}"


def _name(drawn) -> str:
    name = str(drawn.get_label())
    return "-" if name.startswith("_") else name


def _told(name: str, points: np.ndarray) -> str:
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        return f"{name}: no points"
    return f"{name}: {len(points)} points, x {_range(points[:, 0])}, y {_range(points[:, 1])}"


def _range(values: np.ndarray) -> str:
    """Least, mean and greatest."""
    if not len(values):
        return "none"
    return f"{values.min():.3g} / {values.mean():.3g} / {values.max():.3g}"


def _flat(text: str) -> str:
    return " ".join(text.split())
