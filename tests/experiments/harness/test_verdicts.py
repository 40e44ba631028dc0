"""Verdicts that could have failed: of every judged cell of every paper, from the kept rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import combinations

import pytest

from experiments.harness import facts, studies
from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, rows_of
from experiments.harness.verdicts import Verdict
from experiments.report.headline import headlines

FACTORS = (1e4, 1e-4)  # wrong by so many times, up and down
# What tells the rows of a table apart that stand for different things.
KINDS = ("variant", "column", "algorithm", "method", "precision", "planned_for", "where", "ndim",
         "taps", "layer", "kernel", "label")  # fmt: skip


@pytest.fixture(scope="module")
def results() -> list[tuple[Table, list[Row]]]:
    """The papers' tables, with their kept rows; computed by the process alone that tests them."""
    return [(t, rows_of(t)) for t in studies.tables() if t.paper in facts.papers()]


@pytest.fixture(scope="module")
def cells(results: list[tuple[Table, list[Row]]]) -> dict[str, list[Cell]]:
    """All of their cells, by the table's key."""
    return {table.key: list(table.cells(rows)) for table, rows in results}


@pytest.fixture(params=facts.papers())
def judged(
    request: pytest.FixtureRequest,
    results: list[tuple[Table, list[Row]]],
    cells: dict[str, list[Cell]],
) -> list[tuple[Table, list[Row]]]:
    """Those of a paper in which a cell is judged."""
    mine = [(table, rows) for table, rows in results if table.paper == request.param]
    found = [(t, rows) for t, rows in mine if any(c.agrees is not None for c in cells[t.key])]
    assert found
    return found


def place(cell: Cell) -> tuple[str, str]:
    return cell.where, cell.column


def planted(rows: Sequence[Row], values: Sequence[str]) -> Iterator[list[Row]]:
    """The rows with measured fields wrong: in all of them, in those of one kind, of two kinds."""
    single = dict.fromkeys((k, row[k]) for row in rows for k in KINDS
                           if isinstance(row.get(k), (str, int)))  # fmt: skip
    for kinds in [(), *((kind,) for kind in single), *combinations(single, 2)]:
        for factor in (*FACTORS, 0.0) if values == ("ours",) else FACTORS:
            yield [
                {**row, **{v: wrong(row[v], factor) for v in values if row.get(v) is not None}}
                if all(row.get(k) == name for k, name in kinds)
                else row
                for row in rows
            ]


def wrong(value, factor: float):
    if isinstance(value, list):
        return [wrong(v, factor) for v in value]
    return value * factor if value else 1.0


def test_a_planted_wrong_number_makes_a_cell_disagree(
    judged: list[tuple[Table, list[Row]]],
) -> None:
    for table, rows in judged:
        if table.sources:  # of one GPU, and of what the table reads
            rows = [row for row in rows if any(row.get(v) is not None for v in table.values)]
        left = {place(c) for c in table.cells(rows) if c.agrees is not None}
        assert left, table.key
        for spoiled in planted(rows, table.values):
            left -= {place(c) for c in table.cells(spoiled) if c.agrees is False}
            if not left:
                break
        assert not left, f"{table.key}: nothing makes these disagree: {sorted(left)[:3]}"


def test_what_is_judged_has_the_paper_s_number_and_a_range(
    judged: list[tuple[Table, list[Row]]], cells: dict[str, list[Cell]]
) -> None:
    for table, _ in judged:
        mine = [c for c in cells[table.key] if c.agrees is not None]
        assert len({place(c) for c in mine}) == len(mine), table.key
        for c in mine:
            assert c.accepted is not None
            assert c.claim or c.paper is not None
            assert c.aim is None
            least, most = c.accepted
            assert least <= most
            ends = (least, -math.inf), (most, math.inf)
            beyond = [math.nextafter(end, way) for end, way in ends if math.isfinite(end)]
            assert beyond
            assert all(replace(c, ours=value).agrees is False for value in beyond)


def test_no_aim_of_ours_is_in_the_paper_s_column(cells: dict[str, list[Cell]]) -> None:
    for table in studies.computed():
        if table.paper not in facts.papers():
            assert all(c.paper is None for c in table.cells(rows_of(table)))
    for mine in cells.values():
        assert all(c.aim is None or c.paper is None for c in mine)


def test_no_judged_cell_was_used_in_a_fit(cells: dict[str, list[Cell]]) -> None:
    """What counts as fitted is what the fits read, no more and no less."""
    read = {inner for fit in studies.fits() for inner in fit.places}
    of: dict[Verdict, set] = {}
    for key, mine in cells.items():
        for c in mine:
            of.setdefault(c.verdict, set()).add((key, *place(c)))
    assert of[Verdict.FITTED] == read
    assert not read & (of[Verdict.AGREES] | of[Verdict.DISAGREES])


@pytest.mark.parametrize("fit", studies.fits(), ids=lambda fit: fit.what)
def test_constants_in_use_are_the_fitted_ones(fit) -> None:
    used, fitted = fit.used(), fit.fitted()
    assert used.keys() == fitted.keys()
    for name, value in used.items():
        assert abs(value / fitted[name] - 1) <= fit.rounding, name


def test_headlines_of_the_papers(
    results: list[tuple[Table, list[Row]]], cells: dict[str, list[Cell]]
) -> None:
    """Golden values, from the kept rows: they change with the rows, and with nothing else."""
    shown = [(table, cells[table.key]) for table, rows in results if rows or table.missing]
    found = {paper: asdict(counts) for paper, counts in headlines(shown).items()}
    names = ("judged", "agreeing", "claims", "holding", "fitted", "not_comparable",
             "not_reproduced", "open")  # fmt: skip
    assert {paper: tuple(counts[n] for n in names) for paper, counts in found.items()} == GOLDEN


GOLDEN = {
    "lavin_gray_2016": (105, 96, 0, 0, 3, 68, 0, 0),
    "dwm_2021": (0, 0, 115, 84, 0, 1, 6, 5),
    "opencnn_2021": (6, 4, 19, 19, 2, 121, 0, 0),
    "im2col_winograd_2024": (108, 53, 28, 25, 0, 150, 41, 0),
    "winrs_2025": (124, 84, 27, 25, 54, 183, 0, 1),
}
