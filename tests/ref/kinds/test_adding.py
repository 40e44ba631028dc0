"""What adding a kind of algorithm costs: one module (plain_kind.py) and a registry's line."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import winolab
from winolab.algorithm import FORMS, KINDS, Algorithm, Problem, parse_algorithm
from winolab.cli.command import app
from winolab.cli.listing import algorithms
from winolab.measure import Case
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.cost.count import DIRECTIONS, cost
from winolab.ref.error.expected import expected
from winolab.ref.error.proven import proven
from winolab.ref.kinds.registry import ENGINES

PROBLEM = Problem.of((2, 7, 6, 4), (6, 3, 2, 2), stride=(2, 1), padding=1, groups=2)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the kind, in the registry while a test runs."""
    for table in (KINDS, FORMS, ENGINES):
        monkeypatch.setitem(table, "plain", None)  # so that it goes again
    monkeypatch.delitem(sys.modules, "tests.support.plain_kind", raising=False)
    module = import_module("tests.support.plain_kind")
    monkeypatch.setitem(ENGINES, "plain", module)
    return module


def operands(direction: str) -> tuple[np.ndarray, np.ndarray]:
    names = {"forward": "xw", "backward_data": "yw", "backward_filter": "xy"}[direction]
    rng = np.random.default_rng(0)
    shapes = {"x": PROBLEM.x_shape, "w": PROBLEM.w_shape, "y": PROBLEM.y_shape}
    a, b = (rng.standard_normal(shapes[name]).astype(np.float32) for name in names)
    return a, b


def test_its_text_is_read_and_refused(plain: Any) -> None:
    named: Any = parse_algorithm("plain:2")
    assert isinstance(named, plain.Plain)
    assert (str(named), named.kind, named.times) == ("plain:2", "plain", 2)
    assert named == Algorithm("plain", 2) == Algorithm("plain", times=2)
    assert hash(named) == hash(plain.Plain(2))
    for text, message in (
        ("plain:2:3", "malformed; plain has the form 'plain:2'"),
        ("plain:2@paper", "malformed; plain has the form 'plain:2'"),
        ("plain:0", "plain: 0 times; expected at least 1"),
        ("plian:2", "did you mean 'plain:2'"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_algorithm(text)
    with pytest.raises(ValueError, match="plain takes no points"):
        Algorithm("plain", points="paper")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_it_runs_and_is_bounded(plain: Any, direction: str) -> None:
    a, b = operands(direction)
    how = {"stride": PROBLEM.stride, "padding": PROBLEM.padding, "groups": PROBLEM.groups}
    call = getattr(winolab, f"conv_{direction}")
    given: tuple[Any, ...] = (a, b)
    if direction != "forward":
        given += (PROBLEM.x_shape if direction == "backward_data" else PROBLEM.w_shape,)
    y = call(*given, **how, algorithm="plain:2")
    assert (y == call(*given, **how, algorithm="direct")).all()
    exact = call(*(v.astype(float) for v in (a, b)), *given[2:], **how)
    run = arithmetic("fp32")
    limit = proven(a, b, PROBLEM, plain.Plain(2), run, direction=direction)
    assert (limit == proven(a, b, PROBLEM, winolab.direct(), run, direction=direction)).all()
    assert np.isfinite(limit).all()
    assert (np.abs(y - exact) <= limit).all()
    twice, once = (
        expected(a, b, PROBLEM, algorithm, run, direction=direction).relative_rms
        for algorithm in (plain.Plain(2), winolab.direct())
    )
    assert twice == once > 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_it_has_a_cost(plain: Any, direction: str) -> None:
    once, twice = (cost(PROBLEM, a, direction) for a in (winolab.direct(), plain.Plain(2)))
    assert twice.products == 2 * once.products == 2 * PROBLEM.macs
    layer = ["cost", "--input", "1x8x8x4", "--filter", "4x3x3", "--direction", direction]
    done = CliRunner().invoke(app, [*layer, "--compare", "--json"], catch_exceptions=False)
    flops = {row["algorithm"]: row["flops"] for row in json.loads(done.stdout)}
    assert flops["plain:3"] == 3 * flops["direct"]


def test_the_command_lists_and_measures_it(plain: Any) -> None:
    (row,) = (row for row in algorithms() if row["kind"] == "plain")
    assert row["form"] == "plain:2"
    assert row["what"] == "Direct convolution, done so many times."
    assert (row["reference"], row["strides"], row["cuda"]) == (list(DIRECTIONS), True, [])
    got, direct = (
        Case(text, "1x6x6x3", "2x3x3", sample="full").measure() for text in ("plain:1", "direct")
    )
    assert got["relative_rms"] == direct["relative_rms"] > 0
    assert got["bound_ratio"] == direct["bound_ratio"] <= 1


def test_it_is_gone_when_it_is_not_registered() -> None:
    with pytest.raises(ValueError, match="unknown algorithm 'plain:2'"):
        parse_algorithm("plain:2")
