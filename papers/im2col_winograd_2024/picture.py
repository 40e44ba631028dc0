"""The README's picture as SVG: Table 3's errors of Γ16(8,9) and Γ8(6,3), taken apart.

It stands on a ground of its own, light or dark as the reader's screen is, so that it can be read on
any page; and its text is as large as that a screen of 390 pixels shows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from experiments.harness.facts import table
from experiments.harness.jobs import Row
from experiments.harness.tables import select
from papers.im2col_winograd_2024.accuracy import PAPER

WIDTH, HEIGHT = 560, 380
LEFT, RIGHT, TOP, BOTTOM = 60, 300, 66, 326  # of the plot
DECADES = (-7, -4.75)
APART = 21  # pixels between two labels
EXPONENTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
STYLE = """
svg{--ground:#ffffff;--ink:#1f2328;--faint:#d1d9e0;--a:#cf222e;--b:#9a6700;--c:#8250df;--d:#0969da;\
--e:#1a7f37;--f:#59636e}
@media(prefers-color-scheme:dark){svg{--ground:#0d1117;--ink:#f0f6fc;--faint:#3d444d;--a:#ff7b72;\
--b:#d29922;--c:#d2a8ff;--d:#79c0ff;--e:#56d364;--f:#9198a1}}
text{font:17px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:var(--ink)}
.head{font-weight:600;font-size:20px}.line{fill:none;stroke-width:2.5}
.grid{stroke:var(--faint);stroke-width:1}.cross{stroke:var(--ink);stroke-width:2}
"""


@dataclass(frozen=True)
class Line:
    """A line of the picture: which rows, its colour, its label, whether crosses lie on it."""

    column: str
    variant: str
    colour: str
    label: str
    crosses: bool = False
    dashes: str = ""


LINES = (
    Line("gamma:16:8:9", "typed", "a", "Γ16(8,9), 7-digit constants", crosses=True),
    Line("gamma:16:8:9", "exact", "b", "with exact constants"),
    Line("gamma:16:8:9", "program", "c", "and our order of sums"),
    Line("gamma:16:8:9", "best", "d", "and better points"),
    Line("gamma:16:8:9", "direct", "f", "direct 9×9", dashes="6 4"),
    Line("gamma:8:6:3", "exact", "e", "Γ8(6,3), exact constants", crosses=True),
)


def errors(rows: Sequence[Row], line: Line) -> list[tuple[int, float]]:
    """Channels and mean relative error of a line, the mean of the seeds."""
    (column,) = (c for c in table(PAPER, 3)["columns"] if c["algorithm"] == line.column)
    mine = select(rows, column=line.column, variant=line.variant)
    return [
        (shape[3], fmean(row["mare"] for row in select(mine, shape="x".join(map(str, shape)))))
        for shape in column["shapes"]
    ]


def printed(line: Line) -> list[tuple[int, float]]:
    """Channels and the error that the paper prints."""
    (column,) = (c for c in table(PAPER, 3)["columns"] if c["algorithm"] == line.column)
    return [(shape[3], v) for shape, v in zip(column["shapes"], column["mare"], strict=True)]


def factors(rows: Sequence[Row]) -> list[float]:
    """Γ16(8,9) at 64 channels: what exact constants, the order of sums and points each gain."""
    found = [errors(rows, line)[0][1] for line in LINES[:4]]
    return [a / b for a, b in pairwise(found)]


def _x(channels: int) -> float:
    return LEFT + 12 + (RIGHT - LEFT - 24) * (math.log2(channels) - 6) / 3


def _y(error: float) -> float:
    low, high = DECADES
    return BOTTOM - (BOTTOM - TOP) * (math.log10(error) - low) / (high - low)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{text}</text>'


def _grid() -> list[str]:
    found = []
    for power in range(math.ceil(DECADES[0]), math.floor(DECADES[1]) + 1):
        y = _y(10.0**power)
        found.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        found.append(_text(LEFT - 8, y + 5, f"10⁻{EXPONENTS[-power]}", ' text-anchor="end"'))
    below = [(_x(n), BOTTOM + 22, str(n)) for n in (64, 128, 256, 512)]
    below.append(((LEFT + RIGHT) / 2, BOTTOM + 44, "channels"))
    return [*found, *(_text(*one, ' text-anchor="middle"') for one in below)]


def _labels(ends: dict[Line, float]) -> list[str]:
    """Each line's label at its end, moved so far that none lies over another."""
    lines, places = sorted(ends, key=ends.__getitem__), []
    for line in lines:
        places.append(max(ends[line], places[-1] + APART) if places else ends[line])
    shift = sum(ends[line] - place for line, place in zip(lines, places, strict=True)) / len(places)
    return [
        _text(RIGHT + 8, place + shift / 2 + 5, line.label, f' style="fill:var(--{line.colour})"')
        for line, place in zip(lines, places, strict=True)
    ]


def svg(rows: Sequence[Row]) -> str:
    """The picture of Table 3's rows."""
    parts, ends = _grid(), {}
    for line in LINES:
        points = [(_x(channels), _y(error)) for channels, error in errors(rows, line)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{line.dashes}"' if line.dashes else ""
        parts.append(f'<path class="line" stroke="var(--{line.colour})"{dashes} d="M{path}"/>')
        ends[line] = points[-1][1]
        for channels, error in printed(line) if line.crosses else ():
            x, y = _x(channels), _y(error)
            parts.append(f'<path class="cross" d="M{x - 6:.1f} {y - 6:.1f}l12 12m-12 0l12-12"/>')
    parts += _labels(ends)
    head = "Where Γ16’s error of 10⁻⁵ comes from"
    below = "mean relative error on U[1, 2]; × printed, lines simulated"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{head}">',
            f"<style>{STYLE}</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" style="fill:var(--ground)"/>',
            _text(16, 30, head, ' class="head"'),
            _text(16, 53, below),
            *parts,
            "</svg>\n",
        ]
    )
