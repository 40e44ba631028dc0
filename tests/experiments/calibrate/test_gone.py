"""Rows of picks that are gone: the list of them is today's, and they count nowhere."""

from __future__ import annotations

from functools import cache
from random import Random

from experiments.calibrate import gone
from experiments.calibrate.gone import CASE, FILES, apart, chosen, picked, same, today, told
from experiments.measure.layer_rows import Row
from experiments.measure.layers import LISTS

OUTDATED = (
    "picks are others: python -m experiments.calibrate.gone, then experiments.report.documents"
)
DRAWN = 100  # cases of the list, and of the others


@cache
def rows() -> dict[tuple[str, ...], Row]:
    """The rows of what was picked, by case."""
    return {tuple(row[name] for name in CASE): row for row in chosen()}


def test_every_list_of_layers_is_planned() -> None:
    assert set(FILES) == set(LISTS)
    assert len(rows()) > 2400


def test_the_list_has_todays_picks_of_rows_that_are_of_others() -> None:
    listed = today()
    assert listed.keys() <= rows().keys()
    for case in Random(0).sample(sorted(listed), min(DRAWN, len(listed))):
        plan = picked(rows()[case])
        assert listed[case] == dict(zip(CASE, case, strict=True)) | told(plan), OUTDATED
        assert not same(rows()[case], plan), OUTDATED
        assert gone.gone(rows()[case])


def test_other_rows_are_of_todays_picks() -> None:
    for case in Random(0).sample(sorted(rows().keys() - today().keys()), DRAWN):
        assert same(rows()[case], picked(rows()[case])), OUTDATED
        assert not gone.gone(rows()[case])


def test_a_row_is_of_a_plan_by_its_kernel_block_walk_and_shares() -> None:
    kinds = {"depthwise", "implicit GEMM", "thin"}
    found = {}
    for case, row in rows().items():
        if case not in today() and row["workspace"] and row["direction"] == "backward_filter":
            found.setdefault(row["kernel"], row)
    for row in (found[kind] for kind in kinds):
        plan = picked(row)
        assert same(row, plan)
        for name in ("kernel", "products", "plan"):
            assert not same(row | {name: "another"}, plan)
        assert not same(row | {"workspace": 2 * row["workspace"] + 2**20}, plan)
        if "rows" in row:
            assert not same(row | {"rows": row["rows"] + 1}, plan)


def test_all_rows_of_a_case_whose_pick_is_gone_are_set_apart(monkeypatch) -> None:
    where = {"device": "NVIDIA H", "direction": "forward", "precision": "fp32"}
    made = [{**where, "layer": layer, "method": method, "chosen": method == "winolab",
             "plan": "8x8"} for layer in "ab" for method in ("winolab", "torch")]  # fmt: skip
    assert apart(made) == (made, [])
    pick = {name: made[0][name] for name in CASE} | {"plan": "4x4"}
    monkeypatch.setattr(gone, "today", lambda: {tuple(pick[name] for name in CASE): pick})
    assert apart(made) == (made[2:], made[:1])
    new = made[0] | {"plan": "4x4"}  # which was measured since
    assert apart([new, *made[1:]]) == ([new, *made[1:]], [])
