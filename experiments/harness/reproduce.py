"""The papers' tables beside ours: ``python -m experiments.harness.reproduce [PAPER [TABLE]]``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from shlex import quote
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.text import Text

from experiments.harness import facts, jobs, studies
from experiments.harness.jobs import Row
from experiments.harness.studies import measured_by
from experiments.harness.tables import Cell, Table, rows_of, store
from experiments.harness.verdicts import AIMS, JUDGED, Verdict
from experiments.report import page
from experiments.report.counts import counts
from experiments.report.headline import headlines
from experiments.report.page import number
from winolab.cli import process
from winolab.cli.environment import cores
from winolab.cli.screen import fitted
from winolab.cli.screen.render import document
from winolab.spread import Dask


def chosen(paper: str | None, table: str | None, every: bool = True) -> list[Table]:
    """The tables of that paper and name, those that a GPU measured last; without a name, those
    computed here, and without ``every`` all but the long ones.

    Raises ValueError naming the papers and tables there are.
    """
    if paper is None and not every:
        return [t for t in studies.computed() if not t.long]
    if paper is None:
        return studies.computed()
    known = [*studies.computed(), *studies.kept()]
    papers = list(dict.fromkeys(t.paper for t in known))
    if paper not in papers:
        raise ValueError(f"unknown paper {paper!r}; expected one of {', '.join(papers)}")
    mine = [t for t in known if t.paper == paper]
    found = [t for t in mine if table in (None, t.name)]
    if not found:
        names = ", ".join(t.name for t in mine)
        raise ValueError(f"{paper} has no {table!r} here; expected one of {names}")
    return found


def measure(
    tables: Sequence[Table], full: bool, workers: int, dask: str | None = None, gpu: bool = False
) -> list[list[Row]]:
    """The rows of each table, under one progress bar; what an interrupted call had is not run
    again. With ``gpu`` a GPU runs what simulates layers, and then ``workers`` the rest.

    Raises ValueError for ``gpu`` with ``dask``, MachineError where there is no GPU.
    """
    if gpu and dask:
        raise ValueError("--gpu with --dask: one GPU serves this process; give one of the two")
    todo = [table.jobs(full) for table in tables]
    with process.progress(quiet=False) as bar:
        task = bar.add_task("layers", total=sum(map(len, todo)))
        every = [job for part in todo for job in part]
        rows = jobs.run(every, workers, lambda done: bar.advance(task, done), dask, UNFINISHED, gpu)
    by_table = {table.key: [] for table in tables}
    for row in rows:
        by_table[f"{row['paper']} {row['table']}"].append(row)
    return [by_table[table.key] for table in tables]


def shown(table: Table, cells: Sequence[Cell]) -> Group:
    """What is judged of a table for the screen; numbers of all variants are in the report."""
    columns: list[tuple[str, Callable[[Cell], str]]] = [
        ("", lambda c: f"{c.where}: {c.column}"),
        ("paper", lambda c: number(c.paper)),
        ("aim", lambda c: number(c.aim)),
        ("ours", lambda c: number(c.ours)),
        ("interval", lambda c: f"{number(c.low)} … {number(c.high)}" if c.low < c.high else ""),
        ("ratio", lambda c: "" if c.ratio is None else f"{c.ratio:.2f}"),
        ("prediction", lambda c: number(c.prediction)),
        ("bound", lambda c: number(c.bound)),
        ("verdict", lambda c: "" if c.verdict is Verdict.SHOWN else c.verdict.value),
    ]
    judged = [c for c in cells if c.verdict in (*JUDGED, *AIMS)]
    lines = judged or cells
    grid = fitted.Fitted(
        [
            fitted.Column(name, texts, folds=not name, rank=RANKS.get(name, 0))
            for name, text in columns
            if any(texts := tuple(text(line) for line in lines))
        ]
    )
    title = Text(f"{table.paper} {table.name}: {table.title}", style="italic")
    found = counts(cells).text
    rule = f"{'Rule' if judged else 'Why'}: {table.tolerance}."
    caption = f"{found}. {rule} The report has all {len(cells)} numbers."
    return Group(title, grid, Text(caption, style="dim italic"))


def kept(table: Table, whole: bool) -> tuple[list[Cell], Group | str]:
    """The numbers of a table that a GPU measured, and what the screen shows of them; ``whole``:
    unjudged ones too.
    """
    how = "; ".join(measured_by(table))
    cells = table.cells(rows_of(table))
    if not cells:
        return cells, f"{table.key}: no rows are kept; on a GPU they are measured by {how}"
    where = f"From kept rows, measured on a GPU by {how}."
    if not whole and not any(c.verdict in (*JUDGED, *AIMS) for c in cells):
        name = f"winolab reproduce {table.paper} {quote(table.name)}"
        return cells, f"{table.key}: {len(cells)} numbers, none judged: {name} shows them. {where}"
    return cells, Group(shown(table, cells), Text(where, style="dim italic"))


RANKS = {"interval": 4, "prediction": 2, "bound": 3, "ratio": 1}  # the last is left out first


# What an interrupted call computed.
UNFINISHED = page.REPORT.with_name("unfinished.jsonl")
# Columns of a log file: the longest line of a table.
WIDTH = 140
SAMPLED = "Where outputs are sampled, counts may differ from README's: --full (FULL=1) gives those"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    paper: Annotated[str | None, typer.Argument(help="A paper, as --list names it.")] = None,
    table: Annotated[str | None, typer.Argument(help="One of its tables.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name papers and tables.")] = False,
    every: Annotated[bool, typer.Option("--all", help="The tables that take minutes too.")] = False,
    full: Annotated[bool, typer.Option("--full", help="All outputs: hours without --gpu.")] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="Simulate layers on a GPU.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one a core.")] = None,
    dask: Dask = None,
    as_json: Annotated[bool, typer.Option("--json", help="Cells as JSON, no tables.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Rewrite the kept rows.")] = False,
) -> None:
    """Regenerate tables, print them beside the papers' numbers, and write results/report.html, or
    what is named of a paper alone to results/PAPER.html.

    Rows that are computed go to results/rows, and with --update to experiments/results as well.

    The report also has the tables that are not regenerated, from the rows kept of them; those that
    a GPU measured are printed from kept rows where they, or their paper, are named.
    """
    console = Console(stderr=as_json)
    if not console.is_terminal:
        console = Console(stderr=as_json, width=WIDTH)
    tables = chosen(paper, table, every or list_)
    if list_:
        listed = [*tables, *studies.kept()] if paper is None else tables
        print(document([_entry(t) for t in listed]) if as_json else "\n".join(map(_line, listed)))
        return
    started = time.perf_counter()
    measured = [t for t in tables if t.sources]
    tables = [t for t in tables if not t.sources]
    found = measure(tables, full, workers or cores(), dask, gpu) if tables else []
    results = list(zip(tables, found, strict=True))
    for name in dict.fromkeys(t.paper for t in tables):
        store(name, [row for t, rows in results if t.paper == name for row in rows], update)
    tried = [(t, cells, shown(t, cells)) for t, rows in results for cells in [t.cells(rows)]]
    tried += [(t, *kept(t, whole=table is not None)) for t in measured]
    if as_json:
        named = (({"source": t.paper, "table": t.name}, cells) for t, cells, _ in tried)
        print(document([{**name, **_fields(c)} for name, cells in named for c in cells]))
    for _, _, grid in () if as_json else tried:
        console.print(grid, "")
    wanted = None if paper is None else [*tables, *measured]
    drawn = studies.results({table.key: rows for table, rows in results}, wanted)
    report = page.REPORT if paper is None else page.REPORT.with_name(f"{paper}.html")
    with process.progress(quiet=False) as bar:
        task = bar.add_task("sections of the report", total=len(drawn))
        path = page.write(drawn, report, lambda: bar.advance(task))
    UNFINISHED.unlink(missing_ok=True)
    seconds = time.perf_counter() - started
    counted_by = headlines((t, cells) for t, _, cells in drawn) if table is None else {}
    for name, counted in counted_by.items():
        if paper in (None, name):
            console.print(f"{facts.named(name)}: {counted.text}", highlight=False)
    if tables and not full:
        console.print(SAMPLED, highlight=False)
    if paper is None and not every:
        names = ", ".join(t.key for t in studies.computed() if t.long)
        console.print(f"In the report from kept rows (--all regenerates them): {names}")
    console.print(f"{seconds:.0f} s; report: {path.relative_to(page.ROOT)}", highlight=False)


def _entry(table: Table) -> dict:
    """A table in the list; ``measured_by``: commands that measure it, where a GPU does."""
    commands = measured_by(table)
    return {"paper": table.paper, "table": table.name, "title": table.title,
            "measured_by": commands}  # fmt: skip


def _line(table: Table) -> str:
    entry = f"{table.paper} {quote(table.name)}  {table.title}"
    commands = measured_by(table)
    return f"{entry} (kept rows; on a GPU: {'; '.join(commands)})" if commands else entry


def _fields(cell: Cell) -> dict:
    return {**vars(cell), "ratio": cell.ratio, "agrees": cell.agrees, "verdict": cell.verdict.value}


if __name__ == "__main__":
    process.run(app)
