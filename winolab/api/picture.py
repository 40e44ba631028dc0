"""Pictures of answers, by matplotlib, which is an extra."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from winolab.gpu.machine import install


def axes(given: Any = None) -> Any:
    """The axes that are given, or those of a new figure.

    Raises ValueError, in one line, where matplotlib is not installed.
    """
    if given is not None:
        return given
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(f"pictures need matplotlib: {install('pictures')}, or pass axes") from None
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    return figure.subplots()


def bars(values: Mapping[str, float], label: str, title: str, given: Any, log: bool = False) -> Any:
    """Horizontal bars, the largest at the top; the figure's axes."""
    made = axes(given)
    ordered = sorted(values.items(), key=lambda item: item[1])
    made.barh([name for name, _ in ordered], [value for _, value in ordered])
    made.set(xlabel=label, title=title)
    if log:
        made.set_xscale("log")
    return made
