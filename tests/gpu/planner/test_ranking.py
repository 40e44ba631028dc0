"""Which of several plans is preferred."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from winolab.gpu.planner.ranking import WORTH, _worth

MIB = 1 << 20


def planned(predicted: float, beside: int) -> Any:
    return SimpleNamespace(predicted=predicted, beside=beside, workspace=beside)


@pytest.mark.parametrize(("share", "worth"), [(0.85, True), (0.95, False), (1.05, False)])
def test_a_workspace_larger_than_the_data_has_to_save_a_tenth(share: float, worth: bool) -> None:
    """Of the time of the fastest plan without."""
    lean, slow, large = planned(1.0, MIB), planned(2.0, 0), planned(share, 2 * MIB)
    plans = sorted([lean, slow, large], key=lambda p: p.predicted)
    kept, costly = _worth(plans, MIB)
    assert (large in kept, large in costly) == (worth, not worth)
    assert {id(p) for p in (*kept, *costly)} == {id(p) for p in plans}
    assert share <= WORTH or not worth


def test_without_another_any_workspace_is_worth_it() -> None:
    large = planned(1.0, 2 * MIB)
    assert _worth([large], MIB) == ([large], [])
