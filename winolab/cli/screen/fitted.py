"""Tables as wide as a screen: a number is shown whole, or its column is left out and named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

Wide = Annotated[
    bool, typer.Option("--wide", help="Show all columns, however narrow the terminal is.")
]
GAP = 2  # columns of the screen between two of a table
FOLDED = 18  # to which texts may be folded; sizes and names stay legible in it


@dataclass(frozen=True)
class Column:
    """A column of texts, one a row, which fold, or of numbers, which do not.

    ``title`` may wrap at blanks and line ends. Of the numbers those with the largest ``rank`` are
    left out first, of equals the last.
    """

    title: str
    cells: tuple[str, ...]
    folds: bool = False
    rank: int = 0

    @property
    def name(self) -> str:
        """The title in one line."""
        joined = self.title.replace("-\n", "").replace("/\n", "/")
        return " ".join(joined.split())

    @property
    def natural(self) -> int:
        """Screen columns that the cells want."""
        return max(map(len, (*self.title.split(), *self.cells, "")))

    @property
    def least(self) -> int:
        """Screen columns that it needs."""
        word = max(map(len, (*self.title.split(), "")))
        return max(word, min(self.natural, FOLDED)) if self.folds else self.natural


@dataclass(frozen=True)
class Fitted:
    """A table that fits the console, rows one above the other where no number fits beside texts."""

    columns: Sequence[Column]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown, left_out = fit(self.columns, options.max_width)
        if not shown:
            yield from _records(self.columns)
            return
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
        spare = options.max_width - _width(shown)
        for column in shown:
            more = min(spare, column.natural - column.least)
            spare -= more
            side = "left" if column.folds else "right"
            table.add_column(column.title, justify=side, overflow="fold", width=column.least + more)
        for cells in zip(*(column.cells for column in shown), strict=True):
            table.add_row(*map(Text, cells))
        yield table
        if left_out:
            yield Text()
            names = ", ".join(column.name for column in left_out)
            yield Text(f"Left out, for --wide or a wider terminal: {names}.", style="yellow")


def fit(columns: Sequence[Column], width: int) -> tuple[list[Column], list[Column]]:
    """The columns that fit into ``width``, and those that do not; all of these where the texts
    leave no room for any number."""
    shown, left_out = list(columns), []
    while _width(shown) > width:
        numbers = [column for column in shown if not column.folds]
        if len(numbers) < 2:
            return [], list(columns)
        worst = max(reversed(numbers), key=lambda column: column.rank)
        shown = [column for column in shown if column is not worst]
        left_out.append(worst)
    return shown, [column for column in columns if column in left_out]


def of_rows(titles: Iterable[Column], rows: Iterable[Sequence[str]]) -> Fitted:
    """The table of these columns, whose cells are the rows'."""
    titles, cells = list(titles), list(zip(*rows, strict=True))
    return Fitted(
        [replace(c, cells=tuple(mine)) for c, mine in zip(titles, cells, strict=True)]
        if cells
        else titles
    )


def texts(*titles: str) -> list[Column]:
    """Columns of texts, their cells to come."""
    return [Column(title, (), folds=True) for title in titles]


def numbers(*titles: str, ranks: Sequence[int] = ()) -> list[Column]:
    """Columns of numbers, their cells to come; without ``ranks`` the last is left out first."""
    return [
        Column(title, (), rank=rank)
        for title, rank in zip(titles, ranks or range(len(titles)), strict=True)
    ]


def _width(columns: Sequence[Column]) -> int:
    return sum(column.least for column in columns) + GAP * (len(columns) - 1)


def _records(columns: Sequence[Column]) -> Iterable[RenderableType]:
    for cells in zip(*(column.cells for column in columns), strict=True):
        for column, cell in zip(columns, cells, strict=True):
            yield Text(f"{column.name}: {cell}" if column.name else cell, overflow="fold")
        yield Text()
