"""Each paper in one line: how many of its cells are judged, agree, and are not judged, and why.

Everything that counts cells uses this: ``winolab reproduce``, the report, the documents, the
notebooks.
"""

from __future__ import annotations

from collections.abc import Iterable

from experiments.harness import facts
from experiments.harness.tables import Cell, Table
from experiments.report.counts import Counts, counts


def headlines(results: Iterable[tuple[Table, Iterable[Cell]]]) -> dict[str, Counts]:
    """By paper's key, by year: the counts of all its tables, given with their cells."""
    found: dict[str, list[Cell]] = {paper: [] for paper in facts.papers()}
    for table, cells in results:
        if table.paper in found:
            found[table.paper] += cells
    return {paper: counts(cells) for paper, cells in found.items()}
