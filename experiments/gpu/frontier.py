"""Speed against error: every algorithm and precision that ran, and who is on the frontier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.gpu.rows import Row, cases, stored, wrong
from experiments.harness.tables import Cell, Table
from experiments.report.figures import INK, panels_of, with_legend
from experiments.report.labels import Label, label
from experiments.report.texts import Text

FORWARD, FILTER = "forward", "backward_filter"
PANELS = (
    ("128x48x48x128:128x3x3", FORWARD),
    ("32x28x28x128:128x3x3", FORWARD),
    ("64x64x64x128:128x5x5", FORWARD),
    ("32x64x64x128:128x9x9", FORWARD),
    ("128x20x20x512:512x3x3", FILTER),
    ("128x25x25x128:128x9x9", FILTER),
)
WAYS = {FORWARD: "forward", FILTER: "gradient"}
COLOURS = {
    "fp32": "#4c72b0",
    "fp32 split": "#c44e52",
    "tf32": "#937860",
    "fp16": "#dd8452",
    "bf16": "#8172b3",
}
MARKERS = {"winolab": "o", "GEMM": "s", "FFT": "^", "Winograd": "p", "PyTorch": "v"}
KINDS = {"FFT": "FFT", "FFT_TILING": "FFT", "WINOGRAD": "Winograd", "WINOGRAD_NONFUSED": "Winograd"}
USED = 1e-5  # relative RMS below which TF32 was allowed and not used: that is the FP32 algorithm
CAPTION = (
    "Speed against error of every algorithm in every precision, forward and of filter gradients; "
    "up and to the left is better. Filled: winolab, with its kernel; hollow: libraries; colour: "
    "the products' precision. Line: the frontier; below and right of it, somebody is faster and at "
    "least as exact."
)


@dataclass(frozen=True)
class Point:
    """A contender's speed and error on one layer; ``how`` tells it from others of its kernel."""

    kind: str
    products: str
    kernel: str
    tflops: float
    error: float
    how: str

    @property
    def name(self) -> str:
        who = f"winolab {self.kernel}" if self.kind == "winolab" else self.who
        return f"{who} in {self.products}"

    @property
    def who(self) -> str:
        return self.kind if self.kind in ("winolab", "PyTorch") else f"cuDNN {self.kind}"


def points(rows: Sequence[Row], layer: str, direction: str) -> list[Point]:
    """Everybody who ran a layer, in any precision, with a right result: every plan of ours."""
    found = []
    for c in cases(rows):
        if (c.name, c.direction) != (layer, direction):
            continue
        for row in c.rows:
            error = row.get("relative_rms_u11")
            if not isinstance(error, float) or wrong(row) or row.get("prepared"):
                continue
            if row["products"] == "tf32 allowed" and error < USED:
                continue
            products = row["products"].replace("tf32 allowed", "tf32").replace("_", " ")
            kind = KINDS.get(row["kernel"], "GEMM")
            kind = {"winolab": "winolab", "torch": "PyTorch"}.get(row["method"], kind)
            how = row.get("plan") or f"{row['kernel']} {row['layout']}"
            if mib := (row["workspace"] or 0) >> 20:
                how += f", {mib} MiB of workspace"
            found.append(Point(kind, products, row["kernel"], row["tflops"], error, how))
    return found


def edge(every: Sequence[Point]) -> list[Point]:
    """Points that nobody beats in both, the fastest first."""
    found, least = [], math.inf
    for point in sorted(every, key=lambda p: (-p.tflops, p.error)):
        if point.error < least:
            found.append(point)
            least = point.error
    return found


def frontier(rows: Sequence[Row]) -> Figure:
    """A panel a layer: TFLOPS against relative RMS on U[-1, 1)."""
    shown = [(place, every) for place in PANELS if (every := points(rows, *place))]
    columns = min(3, max(1, len(shown)))
    lines = -(-max(1, len(shown)) // columns)
    figure, panels = panels_of(lines, columns, (3.7 * columns, 3.7 * lines), sharey=False)
    named: list[Label] = []
    marks: list[tuple[Axes, tuple[float, float]]] = []
    for panel, ((layer, direction), every) in zip(panels, shown, strict=False):
        for point in every:
            colour = COLOURS[point.products]
            panel.plot(
                point.error, point.tflops, MARKERS[point.kind], color=colour,
                label=f"{point.who}, {point.products}",
                markersize=6,
                markerfacecolor=colour if point.kind == "winolab" else "white",
            )  # fmt: skip
        best = edge(every)
        marks += [(panel, (point.error, point.tflops)) for point in every]
        named += [
            Label(panel, (p.error, p.tflops), p.kernel, COLOURS[p.products])
            for p in best
            if p.kind == "winolab"
        ]
        panel.set(title=f"{WAYS[direction]} {layer}", xscale="log", yscale="log")
        panel.margins(0.12)
        (_, right), (low, _) = panel.get_xlim(), panel.get_ylim()
        errors = [right, *(p.error for p in best), best[-1].error]  # to both edges of the panel
        speeds = [best[0].tflops, *(p.tflops for p in best), low]
        panel.step(errors, speeds, where="pre", color=INK, linewidth=0.8, zorder=1)
        panel.set_ylim(bottom=low)
        ticks = [v for v in (10, 20, 50, 100, 200, 500, 1000) if low <= v <= panel.get_ylim()[1]]
        panel.set_yticks(ticks, [str(v) for v in ticks])
        panel.set_yticks([], minor=True)
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    for panel in panels[-columns:]:
        panel.set_xlabel("relative RMS error on U[-1, 1)")
    for panel in panels[::columns]:
        panel.set_ylabel("effective TFLOPS")
    with_legend(figure, *panels)
    label(figure, named, marks)
    return figure


def told(rows: Sequence[Row]) -> list[str]:
    """A sentence a layer: who is on the frontier, and which of ours is not, and why."""
    lines = []
    for layer, direction in PANELS:
        every = points(rows, layer, direction)
        if not every:
            continue
        best = edge(every)
        members = ", ".join(f"{p.name} ({p.tflops:.0f} TFLOPS, {p.error:.1e})" for p in best)
        line = f"Frontier of {WAYS[direction]} {layer}: {members}."
        for point in every:
            if point.kind == "winolab" and point not in best:
                above = next(p for p in best
                             if p.tflops >= point.tflops and p.error <= point.error)  # fmt: skip
                line += (
                    f" Not on it: {point.name} ({point.tflops:.0f}, {point.error:.1e}), for "
                    f"{above.name} is at least as fast and as exact."
                )
        lines.append(line)
    return lines


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Everybody's speed, with the error."""
    found = []
    for layer, direction in PANELS:
        every = points(rows, layer, direction)
        best = edge(every)
        for point in sorted(every, key=lambda p: -p.tflops):
            place = ", on the frontier" if point in best else ""
            note = f"relative RMS {point.error:.1e}{place}; {point.how}"
            speed = point.tflops
            found.append(Cell(f"{WAYS[direction]} {layer}", point.name, None, speed, speed, speed,
                              note=note))  # fmt: skip
    return found


FRONTIER = Table(
    "gpu",
    "frontier",
    "Speed against error",
    lambda full: [],
    cells,
    "nothing is judged",
    sources=("throughput",),
)
FIGURES = {FRONTIER.key: ((frontier, CAPTION),)}
TEXTS = {
    FRONTIER.key: Text(
        "How fast each algorithm is, and how exact, in every precision.",
        "Every algorithm of cuDNN, PyTorch's choice and this package's kernels on six layers; "
        "errors are relative RMS on U[-1, 1) against FP64.",
        "ours: effective TFLOPS.",
        lambda _: told(stored()),
    ),
}
