"""Each paper in one line: how many of its cells are judged, agree, and are not judged, and why.

Everything that counts cells uses this: ``winolab reproduce``, the report, the documents, the
notebooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.harness import facts, studies
from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, rows_of
from experiments.report.counts import Counts, counts


def headlines(
    results: Iterable[tuple[Table, Sequence[Row]]] | None = None,
) -> dict[str, Counts]:
    """By paper's key, by year: the counts of all its tables, from kept rows or from ``results``,
    tables with their rows."""
    found: dict[str, list[Cell]] = {paper: [] for paper in facts.papers()}
    if results is None:
        results = [(t, rows_of(t)) for t in studies.tables() if t.paper in found]
    for table, rows in results:
        if table.paper in found and (rows or table.missing):
            found[table.paper] += table.cells(rows)
    return {paper: counts(cells) for paper, cells in found.items()}
