"""Tables 4 and 5 and Figures 11 and 12 from planted rows, as a GPU would write them."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest

from experiments.harness.verdicts import Verdict
from experiments.training.run import PLANS
from papers.im2col_winograd_2024 import training


def planted(plan: str) -> list[dict]:
    """Ours takes a step in half of PyTorch's time and two thirds of its memory."""
    ours, theirs = {"step_ms": 10.0, "memory_mb": 2000.0}, {"step_ms": 20.0, "memory_mb": 3000.0}
    rows = []
    for run in PLANS[plan](["winolab", "torch", "tf32"]):
        measured = ours if run.method == "winolab" else theirs
        losses = [2.0, 1.0 if run.method == "winolab" else 1.5]
        rows.append({**asdict(run), **measured, "plan": plan, "device": "H", "losses": losses})
    return rows


@pytest.mark.parametrize(("number", "count"), [(4, 6), (5, 10)])
def test_ours_stand_beside_the_paper_s_and_are_not_judged(number: int, count: int) -> None:
    rows = planted(training.PLANS[number])
    tables = {table.name: table for table in training.made(rows)}
    table = tables[f"table{number}"]
    assert not table.missing
    cells = table.cells(rows)
    assert len({c.where for c in cells}) == count
    accelerations = [c for c in cells if c.column == "acceleration"]
    assert [c.ours for c in accelerations] == [2.0] * count
    assert [c.ours for c in cells if c.column == "memory saved"] == [1.5] * count
    assert [c.ours for c in cells if c.column == "over TF32"] == [2.0] * count
    assert {c.verdict for c in cells} == {
        Verdict.NOT_COMPARABLE,
        Verdict.NOT_REPRODUCED,
        Verdict.SHOWN,
    }
    figure = {4: 11, 5: 12}[number]
    curves = tables[f"figure{figure}"].cells(rows)
    assert [c.ours for c in curves] == [0.25] * count
    other = {4: "table5", 5: "table4"}[number]
    assert tables[other].missing


def test_the_last_of_several_rows_counts() -> None:
    rows = planted("cifar")
    again = [{**row, "step_ms": 4.0, "losses": [2.0, 1.25]} for row in rows
             if row["method"] == "winolab"]  # fmt: skip
    cells = training.cells_speed(5, [*rows, *again])
    assert {c.ours for c in cells if c.column == "acceleration" and c.ours == c.ours} == {5.0}
    assert {c.ours for c in training.cells_curves(5, [*rows, *again])} == {0.125}
    cells = training.cells_speed(5, [*again, *rows])
    assert {c.ours for c in cells if c.column == "acceleration" and c.ours == c.ours} == {2.0}


@pytest.mark.parametrize("of", ["winolab", "torch"])
def test_memory_that_may_hold_a_search_is_not_compared(of: str) -> None:
    """Rows of before have it as another field, from before cuDNN's search in the first step."""
    rows = planted("cifar")
    for row in rows:
        if row["method"] == of:
            row["peak_mb"] = row.pop("memory_mb")
    saved = [c for c in training.cells_speed(5, rows) if c.column == "memory saved"]
    assert len(saved) == 10
    assert all(math.isnan(c.ours) for c in saved)
    assert {c.verdict for c in saved} == {Verdict.NOT_REPRODUCED}
    (panel,) = training.shares(5, rows).axes
    assert "memory saved" not in panel.get_legend_handles_labels()[1]


def test_without_rows_the_paper_s_numbers_stand_alone() -> None:
    for table in training.made([]):
        assert table.missing
        cells = table.cells([])
        assert all(math.isnan(c.ours) for c in cells)
        assert {c.verdict for c in cells} == {Verdict.NOT_REPRODUCED}
    (printed,) = {
        c.paper
        for c in training.cells_speed(4, [])
        if c.where.startswith("VGG16x5") and c.column == "memory saved"
    }
    assert printed == 23750 / 11308
    cells = training.cells_speed(5, [])
    accelerations = [c.paper for c in cells if c.column == "acceleration" and c.paper]
    assert (min(accelerations), max(accelerations)) == (1.124, 1.454)


@pytest.mark.parametrize("number", [4, 5])
def test_tables_are_of_whatever_was_trained(number: int) -> None:
    """A network by winolab alone is not there; of two that both trained, only these are."""
    rows = planted(training.PLANS[number])
    alone = [row for row in rows if row["method"] == "winolab"]
    assert all(table.missing for table in training.made(alone))
    some = [row for row in rows if row["network"] in ("resnet18", "vgg16x5")]
    some[0]["losses"] = [2.0]  # it diverged
    there = {table.name: table for table in training.made(some) if not table.missing}
    figure = {4: 11, 5: 12}[number]
    assert there.keys() == {f"table{number}", f"figure{figure}"}
    cells = there[f"table{number}"].cells(some)
    ours = {c.where for c in cells if c.column == "acceleration" and not math.isnan(c.ours)}
    assert {where.partition(",")[0] for where in ours} == {"ResNet18", "VGG16x5"}
    training.shares(number, some)
    for row in some:
        row["every"] = 10
    panels = training.curves(number, some).axes
    assert len(panels) == len({panel.get_title() for panel in panels}) == len(ours)
