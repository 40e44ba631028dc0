"""What a notebook that is kept shows of a figure: a small picture, and its data in words.

An extension of IPython, which experiments.report.notebooks loads; a reader needs none.
"""

from __future__ import annotations

import io
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from experiments.report.described import described

DPI = 100
COLOURS = 64  # of the palette: lines and points need no more


def picture(figure: Figure) -> bytes:
    """The figure as a small PNG."""
    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", dpi=DPI, facecolor="white")
    with Image.open(whole) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
            small, format="png", optimize=True
        )
    return small.getvalue()


def load_ipython_extension(shell: Any) -> None:
    """Show figures so, whatever ``%matplotlib`` says in between."""
    shell.events.register("pre_run_cell", lambda info: _register(shell))


def _register(shell: Any) -> None:
    formatters = shell.display_formatter.formatters
    formatters["image/png"].for_type(Figure, picture)
    formatters["text/plain"].for_type(
        Figure, lambda figure, printer, cycle: printer.text(described(figure))
    )
