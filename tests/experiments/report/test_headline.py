"""Counts of cells are of each verdict once, numbers and claims apart."""

from experiments.harness.tables import Cell
from experiments.report.headline import Counts, counts


def cell(agrees: bool | None, **more) -> Cell:
    return Cell("where", "column", 1.0, 1.0, 1.0, 1.0, agrees, **more)


def test_numbers_and_claims_are_counted_apart() -> None:
    cells = [cell(True), cell(True), cell(False), cell(None), cell(True, claim=True),
             cell(False, claim=True)]  # fmt: skip
    found = counts(cells)
    assert found == Counts(judged=3, agreeing=2, claims=2, holding=1)
    assert found.text == "2 of 3 numbers agree, 1 of 2 claims hold"
    assert counts([]).text == "nothing judged"
