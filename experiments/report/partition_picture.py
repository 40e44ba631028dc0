"""dy cut into segments and units, drawn as Figure 3 of WinRS: ``winolab plan … --picture FILE``.

Reads the plans' partitions as JSON from standard input; of more than two dimensions the first and
the last are drawn.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import matplotlib as mpl
import typer

mpl.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

# An error is its last line, which the command repeats.
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
COLOURS = ("#4c72b0", "#dd8452")


def picture(plans: Sequence[dict[str, Any]]) -> Figure:
    """A panel a plan: segments numbered and coloured by kernel, units as thin lines."""
    figure = Figure(figsize=(6, 6 * len(plans)), layout="constrained")
    for axes, plan in zip(figure.subplots(len(plans), squeeze=False).flat, plans, strict=True):
        _panel(axes, plan)
    return figure


def _panel(axes: Axes, plan: dict[str, Any]) -> None:
    output = plan["output"]
    height = output[0] if len(output) > 1 else 1
    for z, cut in enumerate(plan["cuts"]):
        colour = COLOURS[plan["kernels"].index(cut["kernel"])]
        top, rows = (cut["start"][0], cut["size"][0]) if len(output) > 1 else (0, 1)
        left, width = cut["start"][-1], cut["size"][-1]
        axes.add_patch(Rectangle((left, top), width, rows, fc=colour, ec="white", lw=2))
        units = range(left + cut["r"], left + width, cut["r"])
        axes.vlines(list(units), top, top + rows, color="white", lw=0.4)
        if len(plan["cuts"]) <= 200:
            axes.text(left + width / 2, top + rows / 2, str(z), ha="center", va="center", c="white")
    axes.set(xlim=(0, output[-1]), ylim=(height, 0), xlabel="width of dy", ylabel="height of dy")
    axes.set_title(f"{plan['device']}: {plan['segments']} segments, {plan['blocks']} blocks")
    handles = [Patch(color=c, label=k) for k, c in zip(plan["kernels"], COLOURS, strict=False)]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


@app.command()
def main(file: Annotated[Path, typer.Argument(help="As plan.svg, .pdf or .png.")]) -> None:
    """Draw the plans whose JSON is read from standard input."""
    picture(json.load(sys.stdin)).savefig(file)


if __name__ == "__main__":
    app()
