"""Cells of a counted table, for the tests of DWM's claims."""

from __future__ import annotations

from experiments.harness.tables import Cell, Table


def cells_of(table: Table) -> list[Cell]:
    """The cells of what its jobs count."""
    return table.cells([row for job in table.jobs(False) for row in job.run()])


def claims(table: Table) -> dict[str, bool | None]:
    """By its text, whether a claim holds."""
    return {c.column: c.agrees for c in cells_of(table) if c.claim}
