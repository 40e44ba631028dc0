"""A paper in a notebook: its title and headline, and every table with the paper's column.

``Paper(key)`` is what each notebook begins with: its ``table(name)`` shows a table,
``figure(name)`` the figure of one, ``rest()`` what was not shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import facts, studies
from experiments.harness.tables import Cell, Table, rows_of
from experiments.harness.verdicts import Verdict
from experiments.report.counts import counts
from experiments.report.figures import INK, lines_of, panels_of, with_legend
from experiments.report.page import cited, named, number

# Lines of a table that stand without a bar to scroll them.
LINES = 24


MARKS = {  # what is judged is drawn last
    Verdict.SHOWN: (".", "#bbbbbb"),
    Verdict.NOT_COMPARABLE: ("^", "#999999"),
    Verdict.OPEN: ("d", "#8172b3"),
    Verdict.FITTED: ("s", "#dd8452"),
    Verdict.AGREES: ("o", "#4c72b0"),
    Verdict.DISAGREES: ("X", "#c44e52"),
}
CLAIMS = {Verdict.AGREES: "hold", Verdict.DISAGREES: "do not hold", Verdict.OPEN: "are open"}


@dataclass(frozen=True)
class Beside:
    """A table's cells: where, what, the paper's number, ours, their ratio, and the verdict."""

    table: Table
    cells: Sequence[Cell]

    def __repr__(self) -> str:
        return f"{cited(self.table)}: {self.table.title}; {counts(self.cells).text}"

    def _repr_html_(self) -> str:
        columns: list[tuple[str, Callable[[Cell], str]]] = [
            ("where", lambda c: c.where),
            ("what", lambda c: c.column),
            ("paper", lambda c: number(c.paper)),
            ("ours", lambda c: number(c.ours)),
            ("ratio", ratio),
            ("verdict", verdict),
            ("", lambda c: c.note),
        ]
        shown = [(name, of) for name, of in columns if any(map(of, self.cells))]
        head = "".join(f"<th>{name}</th>" for name, _ in shown)
        lines, last = [], None
        for cell in self.cells:
            texts = [escape(of(cell)) for _, of in shown]
            if cell.where == last:
                texts[0] = ""
            last = cell.where
            lines.append("<tr>" + "".join(f"<td>{text}</td>" for text in texts) + "</tr>")
        tall = ' style="max-height: 36em; overflow: auto"' if len(lines) > LINES else ""
        return (
            f"<p><b>{escape(cited(self.table))}: {escape(self.table.title)}</b><br>"
            f"{escape(counts(self.cells).text)}. A number agrees: {escape(self.table.tolerance)}."
            f"</p><div{tall}><table><tr>{head}</tr>\n" + "\n".join(lines) + "</table></div>"
        )


@dataclass(frozen=True)
class Several:
    """Tables one below the other."""

    tables: Sequence[Beside]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.tables))

    def _repr_html_(self) -> str:
        return "\n".join(table._repr_html_() for table in self.tables)


def verdict(cell: Cell) -> str:
    """What a cell counts as; nothing where there is nothing to agree with."""
    return "" if cell.verdict == Verdict.SHOWN else cell.verdict.value


def ratio(cell: Cell) -> str:
    """Ours over the paper's, where there are both."""
    return "" if cell.ratio is None else f"{cell.ratio:.2f}"


class Paper:
    """One of the papers, by the name of its folder. Raises ValueError for others."""

    def __init__(self, key: str) -> None:
        self.key, self.facts = key, facts.facts(key)["paper"]
        self.tables = {table.name: table for table in studies.tables() if table.paper == key}
        self._shown: set[str] = set()

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise ValueError(f"there is no {name!r} here; expected one of {', '.join(self.tables)}")
        return self.tables[name]

    def table(self, name: str) -> Beside:
        """A table beside the paper's, from kept rows."""
        self._shown.add(name)
        return self._beside(name)

    def _beside(self, name: str) -> Beside:
        table = self._table(name)
        return Beside(table, table.cells(rows_of(table)))

    def rest(self) -> Several:
        """Every table that was not shown yet."""
        return Several([self.table(name) for name in self.tables if name not in self._shown])

    def figure(self, name: str, which: int = 0) -> Figure:
        """A figure of a table's kept rows, as the report has it."""
        table = self._table(name)
        draw, _ = studies.merged("figures", "FIGURES")[table.key][which]
        return draw(rows_of(table))

    def agreement(self) -> Figure:
        """Ours over the paper's of every cell that has a number of the paper's, by verdict; of a
        paper without numbers how many claims hold."""
        found = {name: cells for name in self.tables if (cells := self._compared(name))}
        if not found:
            return self._claims()
        figure, (panel,) = panels_of(1, 1, (max(6, 0.7 * len(found) + 2), 3.6))
        drawn: dict[Verdict, list[tuple[float, float]]] = {kind: [] for kind in MARKS}
        for i, cells in enumerate(found.values()):
            for at, cell in zip(np.linspace(-0.35, 0.35, len(cells)), cells, strict=True):
                drawn[cell.verdict].append((i + at, cell.ratio or math.nan))
        for kind, (marker, colour) in MARKS.items():
            if drawn[kind]:
                panel.plot(*zip(*drawn[kind], strict=True), marker, color=colour, markersize=4,
                           label=kind.value)  # fmt: skip
        panel.axhline(1, color=INK, linewidth=0.8)
        panel.set_yscale("log")
        panel.set(ylabel="ours over the paper's")
        panel.set_xticks(range(len(found)), [named(name).replace(" ", "\n", 2) for name in found])
        return with_legend(figure, panel)

    def _claims(self) -> Figure:
        """How many claims of each table hold, how many do not, and how many are open."""
        cells = {
            name: [c.verdict for c in self._beside(name).cells if c.claim] for name in self.tables
        }
        found = {name: verdicts for name, verdicts in cells.items() if verdicts}
        names = [named(name) for name in found]
        figure, panel = lines_of(names, (6, 1.2 + 0.3 * len(found)))
        start = np.zeros(len(found))
        for kind, label in CLAIMS.items():
            many = np.array([verdicts.count(kind) for verdicts in found.values()])
            panel.barh(range(len(found)), many, 0.5, start, color=MARKS[kind][1], label=label)
            start += many
        panel.set(xlabel="claims")
        return with_legend(figure, panel)

    def _compared(self, name: str) -> list[Cell]:
        """The cells of a table that have a number of the paper's and one of ours."""
        cells = self._beside(name).cells
        return [c for c in cells if ratio(c) and not c.claim and c.verdict in MARKS]

    @property
    def link(self) -> str:
        """Where the paper is."""
        return facts.link(self.key)

    @property
    def headline(self) -> str:
        """Its counts over all its tables."""
        cells = (cell for name in self.tables for cell in self._beside(name).cells)
        return counts(cells).text

    def __repr__(self) -> str:
        return f"{self.facts['authors']}: {self.facts['title']} ({self.facts['year']})"

    def _repr_html_(self) -> str:
        f = self.facts
        return (
            f'<p>{escape(f["authors"])}: <a href="{self.link}">{escape(f["title"])}</a>. '
            f"{escape(f['venue'])}.<br>Over all tables below: {escape(self.headline)}.</p>"
        )
