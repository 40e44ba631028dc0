"""What a run of the comparison keeps, skips and expects to take."""

from __future__ import annotations

import re

import pytest

from experiments.throughput import GUESS, estimate, latest, sources
from experiments.throughput_cases import cases


def row(case, run: str, **more) -> dict:
    return {"case": [*case.key], "run": run, "took_s": 3.0, **more}


def test_the_last_run_of_a_case_is_kept_and_says_what_it_measured() -> None:
    first, second, *_ = cases("dragon")
    rows = [
        row(first, "2026-01-01", source="old"),
        row(second, "2026-01-01", source="b"),
        row(first, "2026-01-02", source="new"),
        row(first, "2026-01-02", method="failed", sources=["hung"]),
    ]
    found = latest(rows)
    assert [sources(mine) for mine in found] == [{"new", "hung"}, {"b"}]


def test_every_case_once_in_the_order_of_importance() -> None:
    keys = [case.key for case in cases()]
    assert len(keys) == len(set(keys))
    assert keys[0][1:] == ("forward", "fp32")
    assert {case.list for case in cases("odd,resnet1")} == {"odd", "resnet1"}
    with pytest.raises(ValueError, match="expected dragon"):
        next(cases("none"))


def test_estimates_are_of_what_was_measured_or_of_its_kind() -> None:
    first, second, *_ = cases("dragon")
    lines = estimate([first, second], [[row(first, "2026-01-01")]])
    assert lines[-1] == "2 cases, about 6 s"
    assert estimate([first], [])[-1] == f"1 cases, about {GUESS:.0f} s"
    assert re.match("dragon forward fp32: 2 cases", lines[0])
