"""Costs from Python are the command's, and the command prints what Python returns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

import winolab
from winolab.cli.command import app

X, W = (1, 28, 28, 128), (128, 5, 5, 128)


def test_the_command_prints_it() -> None:
    asked = ["cost", "--input", "1x28x28x128", "--filter", "128x5x5", "--padding", "2"]
    printed = CliRunner().invoke(app, [*asked, "--compare", "--json"])
    found = winolab.cost(X, W, padding=2, compare=True)
    assert json.loads(printed.stdout) == json.loads(json.dumps(found.rows))
    assert found.cheapest == found.rows[0]["algorithm"]
    assert found.flops == min(row["flops"] for row in found.rows)
    assert json.loads(json.dumps(found.to_dict()))["x"] == [*X]
    (head, first, *_) = str(found).splitlines()
    assert head.split()[:3] == ["algorithm", "flops", "speedup"]
    assert first.split()[0] == found.cheapest


def test_arguments_mean_what_they_do_in_calls() -> None:
    one = winolab.cost(X, W, padding="same", algorithm="dwm:3:2")
    assert one.rows[0]["multiplications"] == 14**2 * 49 * 128**2
    several = winolab.cost(
        (1, 128, 28, 28), (128, 128, 5, 5), padding=2, layout="channels_first",
        algorithm=["direct", winolab.dwm(3, 2)],
    )  # fmt: skip
    assert several.rows[1] == one.rows[0]
    assert several.flops == winolab.cost(X, W, padding=2).flops == 2 * 28**2 * 25 * 128**2
    halves = winolab.cost(X, W, padding="same", algorithm="dwm:3:2", precision="fp16")
    assert 2 * halves.rows[0]["workspace_bytes"] == one.rows[0]["workspace_bytes"]
    doubles = winolab.cost(X, W, padding="same", algorithm="dwm:3:2", precision="float64")
    assert doubles.rows[0]["traffic_bytes"] == 2 * one.rows[0]["traffic_bytes"]
    strassen = winolab.cost(X, W, padding=2, levels=1).rows[0]["multiplications"]
    assert 8 * strassen == 7 * 28**2 * 25 * 128**2


def test_it_refuses_in_one_line() -> None:
    asked: list[tuple[dict[str, Any], str]] = [
        ({"direction": "backwards"}, "direction 'backwards'; expected one of"),
        ({"algorithm": "gamma:8:6:4"}, "alpha must be n"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"levels": 99}, "levels = 99; expected 0 to 64"),
        ({"padding": -9}, "padding"),
    ]
    for how, message in asked:
        with pytest.raises(ValueError, match=message) as refused:
            winolab.cost(X, W, **how)
        assert "\n" not in str(refused.value)
    left = winolab.cost((1, 9, 9, 3), (3, 3, 3, 3), levels=0, compare=True)
    assert not left.left_out
