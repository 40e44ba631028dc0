"""Python's search for garbage, of which tests' modules are none."""

from __future__ import annotations

import gc


def pytest_configure() -> None:
    """Two million objects are made while tests are collected; to search them took a third of it."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
