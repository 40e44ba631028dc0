"""Every example in a docstring of the library runs, and the public calls have one."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import winolab

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for room in ("winolab", "experiments")
    for path in (ROOT / room).rglob("*.py")
    if ">>> " in path.read_text()
)
# What a reader calls first, and what others are made of.
CALLED = (
    "accuracy",
    "best_points",
    "bound",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_forward",
    "cost",
    "decomposition",
    "parse_algorithm",
    "plan",
    "predict",
    "prepare_filter",
    "records",
    "tolerance",
    "transforms",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    found = doctest.testmod(import_module(name), extraglobs={"winolab": winolab})
    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize("name", CALLED)
def test_public_calls_have_an_example(name: str) -> None:
    assert ">>> " in (getattr(winolab, name).__doc__ or "")
