"""Counts of cells are of each verdict once, numbers and claims apart."""

from experiments.harness.missing import not_reproduced
from experiments.harness.tables import Cell, one
from experiments.harness.verdicts import Verdict, below, equal
from experiments.report.counts import Counts, counts


def cell(agrees: bool | None, **more) -> Cell:
    accepted = None if agrees is None else equal(1.0) if agrees else below(1.0)
    return one("where", "column", 1.0, 1.0, accepted=accepted, **more)


def test_numbers_and_claims_are_counted_apart() -> None:
    cells = [cell(True), cell(True), cell(False), cell(None), cell(True, claim=True),
             cell(False, claim=True), cell(True, aim=2.0), cell(True, standing=Verdict.FITTED),
             cell(False, standing=Verdict.NOT_REPRODUCED, claim=True),
             cell(True, standing=Verdict.OPEN, claim=True)]  # fmt: skip
    found = counts(cells)
    of_claims = {"claims": 2, "holding": 1, "open": 1}
    assert found == Counts(judged=3, agreeing=2, fitted=1, not_reproduced=1, **of_claims)
    told = "2 of 3 numbers agree, 1 of 2 claims hold; 1 fitted, 1 not reproduced, 1 open"
    assert found.text == told
    assert counts([]).text == "nothing judged"


def test_a_number_that_is_not_reproduced_has_no_ratio_and_no_verdict() -> None:
    alone = not_reproduced("where", "column", 2.0)
    assert (alone.ratio, alone.agrees, alone.verdict) == (None, None, Verdict.NOT_REPRODUCED)
