"""What holds in every test."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def nothing_planned_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are made in the test: some tests change what the planner knows."""
    monkeypatch.setenv("WINOLAB_PLANS", "0")
