"""Python's search for garbage, of which tests' modules are none."""

from __future__ import annotations

import gc

# Converting a model looks through Python's objects for what a call left behind: half a second each
# time, of millions that other files' tests keep. Those that a file's own tests make are looked at.
SEARCHING = "tests/torch/"
begun: set[str] = set()  # files


def pytest_configure() -> None:
    """Two million objects are made while tests are collected; to search them took a third of it."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_runtest_logstart(location: tuple[str, int | None, str]) -> None:
    file = location[0]
    if file.startswith(SEARCHING) and file not in begun:
        begun.add(file)
        gc.collect()
        gc.freeze()
