"""``winolab tolerance``: prints what winolab.tolerance returns; its exit code is the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import winolab
from winolab.cli.command import app

LAYER = "2x20x18x12:8x3x3"


def run(*words: Any):
    return CliRunner().invoke(app, ["tolerance", *map(str, words)])


def test_it_prints_what_python_returns() -> None:
    asked = ["--padding", "0:1x1", "--algorithm", "miopen:ConvBinWinogradRxSf2x3"]
    asked += ["--precision", "fp16", "--confidence", "0.99", "--data", "normal"]
    found = winolab.tolerance(
        (2, 20, 18, 12), (8, 3, 3, 12), padding=((0, 1), (1, 1)), precision="fp16", data="normal",
        algorithm="miopen:ConvBinWinogradRxSf2x3", confidence=0.99,
    )  # fmt: skip
    assert json.loads(run(LAYER, *asked, "--json").stdout) == json.loads(
        json.dumps(found.to_dict())
    )
    assert run(LAYER, *asked).stdout == f"{found}\n"


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_the_exit_code_is_the_verdict(direction: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    problem = winolab.Problem.of((2, 20, 18, 12), (8, 3, 3, 12), padding=1)
    of = {"x": problem.x_shape, "w": problem.w_shape, "dy": problem.y_shape}
    names = {"forward": "x w", "backward_data": "dy w", "backward_filter": "x dy"}[direction]
    arrays = [rng.standard_normal(of[name]).astype("f4") for name in names.split()]
    given = {"backward_data": (of["x"],), "backward_filter": (of["w"],)}.get(direction, ())
    y = getattr(winolab, f"conv_{direction}")(*arrays, *given, padding=1)
    asked = ["--padding", "1", "--direction", direction]
    for name, array in zip(names.split(), arrays, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
        asked += [f"--{name}", str(tmp_path / f"{name}.npy")]
    layer = [] if direction == "forward" else [LAYER]
    np.save(tmp_path / "y.npy", y)
    right = run(*layer, *asked, "--check", tmp_path / "y.npy")
    assert right.exit_code == 0, right.output
    assert f"{tmp_path / 'y.npy'}: accepted" in right.stdout
    y[1, 1, 1, 1] *= 1.01
    np.save(tmp_path / "y.npy", y)
    wrong = run(*layer, *asked, "--check", tmp_path / "y.npy", "--json")
    assert wrong.exit_code == 1
    checked = json.loads(wrong.stdout)["check"]
    assert not checked["accepted"]
    assert checked["at"] == [1, 1, 1, 1]


def test_it_refuses_in_one_line(tmp_path: Path) -> None:
    x, text = tmp_path / "x.npy", tmp_path / "text.npy"
    np.save(x, np.ones((2, 9, 9, 4), "f4"))
    text.write_text("no array")
    for words, message in (
        ([], "no layer; expected its input and filter, such as 32x56x56x64:64x3x3"),
        (["2x9x9x4"], "layer '2x9x9x4'; expected input and filter"),
        ([LAYER, "--check", x], "--check needs the operands: give --x and --w"),
        ([LAYER, "--x", x], "operands x; forward has --x and --w"),
        (["--x", x, "--w", text], "text.npy holds no array of numbers, as numpy.save writes it"),
        ([LAYER, "--algorithm", "cudnn:magic"], "unknown algorithm 'cudnn:magic'"),
        ([LAYER, "--direction", "up"], "direction 'up'"),
        ([LAYER, "--confidence", "2"], "confidence is 2.0; expected a number between 0 and 1"),
    ):
        done = run(*words)
        assert done.exit_code
        assert message in str(done.exception), done.exception
        assert "\n" not in str(done.exception)
