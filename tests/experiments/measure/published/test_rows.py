"""Which cases a run measures: those of which this GPU has no row of some plan's present source."""

from __future__ import annotations

from experiments.measure.published.omega import cases, key, planned, with_and_without
from experiments.measure.published.rows import missing
from winolab.bench.contenders import digest
from winolab.device import H100


def test_a_case_is_left_while_one_plan_has_no_row() -> None:
    problem = next(iter(cases()))
    kinds = with_and_without("ahead", problem, H100)
    case = tuple(key(problem).values())
    there = {(*case, str(p.config), digest(p)) for p in kinds}
    assert not missing(key(problem), kinds, there)
    for one in there:
        assert missing(key(problem), kinds, there - {one})
    other = key(list(cases())[1])
    assert missing(other, kinds, there)


def test_a_policy_stands_beside_what_lacks_it_alone() -> None:
    """As many stages as fit beside it; other policies only where they are on both sides."""
    problem = list(cases())[1]
    found = with_and_without("ahead", problem, H100)
    assert found.keys() < planned(problem, H100).keys()
    shapes = {(p.kernel, str(p.config)) for p in found}
    assert {
        ("Ω8(3,6)", "64x64x16 stages=4 wrap=1"),
        ("Ω8(3,6)", "64x64x16 stages=4 ahead=1 wrap=1"),
        ("Ω8(3,6)", "64x64x16 stages=3 ahead=2 wrap=1"),
    } < shapes
    assert not any("pad=0" in text for _, text in shapes)
