"""What holds in every test."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def nothing_planned_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are made in the test: some tests change what the planner knows."""
    monkeypatch.setenv("WINOLAB_PLANS", "0")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A page begins with a compiler that compiled nothing: after some tests in a process, PyTorch
    compiles the same function no more."""
    if isinstance(item, pytest.DoctestItem) and "torch._dynamo" in sys.modules:
        sys.modules["torch"].compiler.reset()
