"""What was tried on the way to the kernels, from kept rows: the best of each step, and how far the
planner's predictions were off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import geometric_mean

from matplotlib.figure import Figure

from experiments.gpu.rows import Row, stored
from experiments.harness.tables import Cell, Table
from experiments.report.figures import INK, panels_of
from experiments.report.texts import Text

CLOSE = 0.2  # a prediction within so much is right
WAYS = {"forward": "forward", "backward_data": "backward data", "backward_filter": "gradient"}


def layer(row: Row) -> str:
    """batch x output x channels, filter; square; output channels where they are others."""
    size, taps = row["output"], row["filter"]
    others = f":{row['out_channels']}" if "out_channels" in row else ""
    return f"{row.get('batch') or '?'}x{size}x{size}x{row['channels']}{others} {taps}×{taps}"


def predicted(row: Row) -> float | None:
    """Microseconds by the planner, before it ran."""
    if value := row.get("predicted_us"):
        return value
    found = re.match(r"([\d.]+) µs by the planner", row["prediction"])
    return float(found[1]) if found else None


def measured(row: Row) -> float | None:
    """Microseconds, by the row or from its speed."""
    if value := row.get("us"):
        return value
    if not row.get("batch"):
        return None
    macs = row["batch"] * (row["output"] * row["channels"] * row["filter"]) ** 2
    return 2 * macs / row["tflops"] / 1e6


def pairs(rows: Sequence[Row]) -> list[tuple[Row, float, float]]:
    """Rows with both times."""
    return [(row, a, b) for row in rows if (a := predicted(row)) and (b := measured(row))]


def cells(rows: Sequence[Row]) -> list[Cell]:
    """The fastest variant of each step and layer."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["step"], WAYS[row["direction"]], layer(row)), []).append(row)
    found = []
    for (step, way, where), mine in groups.items():
        best = max(mine, key=lambda row: row["tflops"])
        speeds = [row["tflops"] for row in mine]
        note = f"best of {len(mine)}: {best['variant']}"
        found.append(
            Cell(f"{way} {where}", step, None, max(speeds), min(speeds), max(speeds), note=note)
        )
    return found


def told(rows: Sequence[Row]) -> list[str]:
    """How many were tried, and what the predictions were worth."""
    both = pairs(rows)
    lines = [f"{len(rows)} variants in {len({row['step'] for row in rows})} steps."]
    if both:
        ratios = [b / a for _, a, b in both]
        right = sum(abs(ratio - 1) <= CLOSE for ratio in ratios)
        lines.append(
            f"Of {len(both)} with a time predicted by the planner, {right} were within {CLOSE:.0%} "
            f"of it; measured over predicted is {geometric_mean(ratios):.2f} as geometric mean, "
            f"{min(ratios):.2f} to {max(ratios):.2f}."
        )
    return lines


def figure(rows: Sequence[Row]) -> Figure:
    """Measured against predicted microseconds, a colour a direction."""
    drawn, (panel,) = panels_of(1, 1, (5.2, 4.6))
    both = pairs(rows)
    for i, (direction, name) in enumerate(WAYS.items()):
        mine = [(a, b) for row, a, b in both if row["direction"] == direction]
        if mine:
            panel.plot(*zip(*mine, strict=True), "o", color=f"C{i}", markersize=3, alpha=0.6,
                       label=name, rasterized=True)  # fmt: skip
    ends = [value for _, a, b in both for value in (a, b)] or [1.0, 10.0]
    line = [min(ends), max(ends)]
    panel.plot(line, line, color=INK, linewidth=0.8)
    panel.set(xscale="log", yscale="log", xlabel="predicted, µs", ylabel="measured, µs")
    panel.legend()
    return drawn


VARIANTS = Table(
    "gpu", "variants", "What was tried on the way", lambda full: [], cells, "nothing is judged",
    sources=("throughput_variants",),
)  # fmt: skip
FIGURES = {
    VARIANTS.key: ((figure, "Variants' times as the planner predicted and as they were measured."),)
}


TEXTS = {
    VARIANTS.key: Text(
        "Block shapes, pipelines, splits of sums, parts left out to place a kernel's time.",
        "Every variant that was timed, losers too, in effective TFLOPS on random data.",
        "ours: the fastest of a step, low and high: the slowest and the fastest.",
        lambda _: told(stored("throughput_variants")),
    )
}
