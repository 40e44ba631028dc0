"""Accuracy from Python is a case of ``winolab accuracy``, and measures one's own arrays."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import winolab
from winolab.cli.command import app
from winolab.cli.screen.render import document
from winolab.measure import Case

X, W = (2, 14, 16, 8), (4, 3, 3, 8)
TIMES = {"seconds"}


def test_it_is_the_row_that_the_command_prints() -> None:
    asked = ["--input", "2x14x16x8", "--filter", "4x3x3", "--padding", "0:1x1", "--json"]
    asked += ["--data", "relu", "--sample", "100", "--seed", "3", "--workers", "1"]
    printed = CliRunner().invoke(app, ["accuracy", "--algorithm", "gamma:8:6:3", *asked])
    (row,) = json.loads(printed.stdout)
    found = winolab.accuracy(
        X, W, algorithm="gamma:8:6:3", padding=((0, 1), (1, 1)), data="relu", sample=100, seed=3
    )
    told = json.loads(document(found.to_dict()))
    assert {name: row[name] for name in told if name not in TIMES} == {
        name: value for name, value in told.items() if name not in TIMES
    }
    assert (found.relative_rms, found.mare) == (row["relative_rms"], row["mare"])
    assert (found.max_abs, found.bound) == (row["max_abs"], row["bound"])
    assert found.predicted == row["prediction"]
    assert f"relative RMS   {found.relative_rms:.3g}" in str(found)


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_arrays_are_measured(direction: Any) -> None:
    rng = np.random.default_rng(0)
    problem = winolab.Problem.of(X, W, padding=1)
    a, b = {
        "forward": (X, W), "backward_data": (problem.y_shape, W),
        "backward_filter": (X, problem.y_shape),
    }[direction]  # fmt: skip
    data = rng.standard_normal(a), rng.standard_normal(b)
    found = winolab.accuracy(X, W, padding=1, direction=direction, data=data, precision="bf16")
    assert found.row["data"] == "arrays"
    assert found.row["bound_ratio"] <= 1
    assert found.relative_rms == pytest.approx(found.predicted, rel=0.6)
    assert found.row["samples"] == np.prod(
        {"forward": problem.y_shape, "backward_data": X, "backward_filter": W}[direction]
    )


def test_moments_are_drawn() -> None:
    found = winolab.accuracy(X, W, data=(winolab.Moments(3.0, 0.25), winolab.Moments(0, 1)))
    again = winolab.accuracy(X, W, data=(winolab.Moments(3.0, 0.25), winolab.Moments(0, 1)))
    other = winolab.accuracy(X, W, data=(winolab.Moments(3.0, 0.25), winolab.Moments(0, 1)), seed=1)
    assert found.relative_rms == again.relative_rms != other.relative_rms
    assert found.row["data"] == "moments"
    with pytest.raises(ValueError, match="sample = 0; expected 1 or more"):
        winolab.accuracy(X, W, sample=0)


@pytest.mark.parametrize(("sample", "computed"), [(1, 16), (100, 160), (1000, 992)])
def test_a_sample_is_of_whole_tiles_as_it_is_said(sample: int, computed: int) -> None:
    found = winolab.accuracy(
        (1, 40, 40, 16), (96, 3, 3, 16), algorithm="winograd:4x4:3x3", padding=1, sample=sample
    )
    assert found.row["samples"] == computed  # 4 × 4 results a tile, isqrt(sample) channels
    said = inspect.getdoc(winolab.accuracy) or ""
    assert "about how many results are computed, of whole tiles" in " ".join(said.split())


def test_ends_of_a_padding_have_a_text() -> None:
    case = Case("direct", "1x9x8x2", "2x3x3", padding="0:1x2")
    assert case.problem.padding == ((0, 1), (2, 2))
    for text in ("1:2:3", "0:1x", "a:1", ":"):
        with pytest.raises(ValueError, match="padding"):
            Case("direct", "1x9x8x2", "2x3x3", padding=text)
