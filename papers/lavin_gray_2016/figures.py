"""The report's figures of Lavin & Gray."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from experiments.harness.jobs import Row
from experiments.report.figures import (
    COLOURS,
    PAPER_STYLE,
    Drawn,
    intervals,
    panels_of,
    with_legend,
)
from papers.lavin_gray_2016 import accuracy as lavin_gray
from papers.lavin_gray_2016 import speeds


def table4(rows: Sequence[Row]) -> Figure:
    """One panel an algorithm: the paper's maxima as crosses, ours as points with intervals."""
    figure, panels = panels_of(1, 4, (11, 3.2), sharey=False)
    layers = [layer["layer"] for layer in lavin_gray.layers()]
    columns = [("direct", "fp32"), ("F2x2", "fp32"), ("F4x4", "fp32"), ("F4x4", "fp16")]
    cells = lavin_gray.cells(rows)
    for panel, (column, kind) in zip(panels, columns, strict=True):
        for marker, colour, part in (("o", "best", ""), ("s", "typed", ", sums of")):
            name = f"{column}, fp16 data" if kind == "fp16" else f"{column}, fp32"
            mine = [
                c for c in cells if c.column == name or (part and c.column.startswith(name + part))
            ]
            mine = [c for c in mine if bool(part) == (part in c.column and bool(part))]
            if mine:
                intervals(
                    panel,
                    [layers.index(c.where.removeprefix("conv ")) for c in mine],
                    [(c.ours, c.low, c.high) for c in mine],
                    COLOURS[colour],
                    marker,
                    "simulated, 90 % interval" if not part else "simulated, sums of 256 channels",
                )
        key = "fp16" if kind == "fp16" else column
        panel.plot(
            range(len(layers)),
            [layer[key] for layer in lavin_gray.layers()],
            label="paper",
            **PAPER_STYLE,
        )
        panel.set_yscale("log")
        panel.set_xticks(range(len(layers)), layers)
        titles = {"direct": "direct", "F2x2": "F(2×2,3×3)", "F4x4": "F(4×4,3×3)"}
        panel.set_title("fp16 data, F(4×4,3×3)" if kind == "fp16" else titles[column] + ", fp32")
        panel.set_xlabel("VGG layer")
    panels[0].set_ylabel("largest |error| of the layer")
    return with_legend(figure, panels[2])


def complexity(rows: Sequence[Row]) -> Figure:
    """Table 1: what an output takes by the size of tiles, the paper's numbers as crosses."""
    figure, panels = panels_of(1, 2, (9.2, 3.6), sharey=False)
    parts = {"α′": "products an output, α′", "β′": "instructions of the data's transform, β′"}
    for panel, (column, label) in zip(panels, parts.items(), strict=True):
        for name, colour in (("Winograd", COLOURS["best"]), ("FFT", COLOURS["typed"])):
            mine = [
                (int(row["where"].rsplit(" ", 1)[1]), row["ours"], row["printed"])
                for row in rows
                if row["column"] == column and row["where"].startswith(f"{name}, tile ")
                and row["where"][-1].isdigit()
            ]  # fmt: skip
            tiles, ours, paper = zip(*sorted(mine), strict=True)
            panel.plot(tiles, ours, color=colour, marker=".", label=name)
            panel.plot(tiles, paper, label="paper" if name == "FFT" else "_paper", **PAPER_STYLE)
        panel.set_xscale("log", base=2)
        panel.set(xlabel="tile", ylabel=label, ylim=(0, None))
        panel.set_xticks([4, 8, 16, 32, 64, 128, 256], ["4", "8", "16", "32", "64", "128", "256"])
    return with_legend(figure, panels[0])


def network(number: int, rows: Sequence[Row]) -> Figure:
    """Shares of the peak by batch, the paper's as crosses, with what 2.25 × SGEMM would be."""
    cells = speeds.cells_table(number, rows)
    figure, (panel,) = panels_of(1, 1, (6, 3.4))
    mine = [c for c in cells if c.column == "effective TFLOPS over the peak"]
    places = range(len(mine))
    panel.plot(places, [c.ours for c in mine], "o-", color=COLOURS["best"], label="H100")
    printed = np.array([c.paper for c in mine], dtype=float)
    panel.plot(places, printed, label="paper, Titan X", **PAPER_STYLE)
    one = speeds.own(rows, speeds.DATA[number][0])[0]
    sgemm = speeds.SAVING * one["sgemm_tflops"] / speeds.peak(one)
    panel.axhline(sgemm, color=COLOURS["direct"], linewidth=0.8, label="2.25 × SGEMM, H100")
    panel.set_xticks(places, [str(n) for n in speeds.BATCHES])
    panel.set(xlabel="N", ylabel="effective TFLOPS over the peak", ylim=(0, None))
    return with_legend(figure, panel)


def figure1(rows: Sequence[Row]) -> Figure:
    """A panel a precision: effective TFLOPS by layer and batch, hollow where the filter's transform
    is fused."""
    cells = speeds.cells_figure1(rows)
    figure, panels = panels_of(1, 2, (10, 3.8))
    shades = ["#c44e52", "#dd8452", "#ccb974", "#55a868", "#4c72b0", "#8172b3", "#555555"]
    names = [layer["layer"] for layer in speeds.layers()]
    for panel, data in zip(panels, ("fp32", "fp16"), strict=True):
        for batch, shade in zip(speeds.BATCHES, shades, strict=True):
            mine = [c for c in cells if c.where.endswith(f", {data}") and
                    c.column == f"N = {batch}"]  # fmt: skip
            places = range(len(mine))
            panel.plot(places, [c.ours for c in mine], color=shade, linewidth=0.9)
            for at, cell in enumerate(mine):
                fused = cell.note.startswith(speeds.FUSED)
                panel.plot(at, cell.ours, "o", color=shade, markersize=4,
                           markerfacecolor="white" if fused else shade,
                           label=f"N = {batch}" if at == 1 else None)  # fmt: skip
        panel.set_xticks(range(len(names)), names)
        panel.set_title(f"{data} data")
        panel.set_xlabel("VGG layer")
    panels[0].set_ylabel("effective TFLOPS")
    return with_legend(figure, panels[0])


SHARES = (
    "VGG network E, layers weighted by their number: effective TFLOPS over the device's peak, with "
    "{data} data. Crosses: the paper."
)
FIGURES: dict[str, tuple[Drawn, ...]] = {
    "lavin_gray_2016 table1": (
        (
            complexity,
            "Multiplications an output, and instructions of the data's transform over "
            "multiplications. Crosses: the paper.",
        ),
    ),
    "lavin_gray_2016 table5": ((partial(network, 5), SHARES.format(data="fp32")),),
    "lavin_gray_2016 table6": ((partial(network, 6), SHARES.format(data="fp16")),),
    "lavin_gray_2016 figure1": (
        (
            figure1,
            "Effective TFLOPS of VGG layers on an H100 by batch, the fastest variant of each; "
            "hollow where the filter is transformed in the block.",
        ),
    ),
    "lavin_gray_2016 table4": (
        (table4, "Largest errors of a layer. Crosses: the paper. Points: our maxima."),
    ),
}
