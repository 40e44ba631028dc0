"""What the functions that need no arrays understand alike, and refuse with the same words."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from typer.testing import CliRunner

import winolab
from winolab.api.peers import RULES
from winolab.cli import accuracy, tolerance
from winolab.cli.command import app
from winolab.kind import LIBRARIES
from winolab.measure import Case

X, W = (2, 10, 10, 4), (8, 3, 3, 4)
ASKED: dict[str, Callable[..., Any]] = {
    name: getattr(winolab, name)
    for name in ("predict", "bound", "tolerance", "accuracy", "cost", "plan")
}
every = pytest.mark.parametrize("name", ASKED)


def told(found: Any) -> str:
    """The answer as JSON has it, without the seconds that it took; NaN is equal to itself there."""
    return json.dumps({k: v for k, v in found.to_dict().items() if k != "seconds"})


FORESEEN = [
    *product(
        ("direct", "winograd:2x2:3x3", "dwm:3:2"), ("forward", "backward_filter"), ("fp32", "mp:90")
    ),
    *product(("fft:8:3",), ("forward", "backward_data"), ("fp32",)),
    *product(("winrs", "omega:8:3:6"), ("backward_filter",), ("fp32", "mp:90")),
]


@pytest.mark.parametrize(("algorithm", "direction", "precision"), FORESEEN)
def test_accuracy_shows_what_predict_predicts(
    algorithm: str, direction: Any, precision: str
) -> None:
    shown = winolab.accuracy(X, W, direction=direction, algorithm=algorithm, precision=precision)
    foreseen = winolab.predict(X, W, direction=direction, algorithm=algorithm, precision=precision)
    assert shown.predicted == pytest.approx(foreseen.relative_rms, rel=0.1)
    assert shown.relative_rms == pytest.approx(shown.predicted, rel=0.5)


def test_accuracy_says_what_has_no_bound_and_no_prediction() -> None:
    winrs = str(winolab.accuracy(X, W, direction="backward_filter", algorithm="winrs"))
    assert "no bound" in winrs
    assert "predicted none" not in winrs
    int8 = str(winolab.accuracy(X, W, algorithm="dwm:3:2", precision="int8:state"))
    assert "predicted none" in int8
    assert "no bound" in int8
    with pytest.raises(ValueError, match="scales that its data have"):
        winolab.predict(X, W, algorithm="dwm:3:2", precision="int8:state")


def test_all_ask_about_the_same_data_where_none_are_named() -> None:
    functions = [ASKED[name] for name in ASKED if name not in ("cost", "plan")]
    commands = [accuracy.accuracy, tolerance.command]
    usual = {inspect.signature(asked).parameters["data"].default for asked in functions + commands}
    assert usual == {Case("direct", "1x9x2", "2x3").data}


@every
def test_a_tile_is_named_as_the_papers_name_it(name: str) -> None:
    meant = told(ASKED[name](X, W, algorithm="winograd:4x4:3x3"))
    for text in ("F(4x4,3x3)", "F(4×4, 3×3)"):
        found = told(ASKED[name](X, W, algorithm=text))
        assert found.replace(json.dumps(text), '"winograd:4x4:3x3"') == meant


@pytest.mark.parametrize("command", ["accuracy", "cost"])
def test_commands_know_the_tile_too(command: str) -> None:
    layer = ["--input", "1x9x9x4", "--filter", "2x3x3", "--json"]
    found = CliRunner().invoke(app, [command, "--algorithm", "F(4x4,3x3),direct", *layer])
    rows = [row["algorithm"] for row in json.loads(found.stdout)]
    assert rows == ["winograd:4x4:3x3", "direct"]


@pytest.mark.parametrize("name", ["cost", "plan"])
def test_other_libraries_names_are_refused_with_where_they_serve(name: str) -> None:
    assert set(LIBRARIES) == set(RULES)
    for text in ("acl:winograd", "cuDNN:fft"):
        with pytest.raises(ValueError, match=r"another library's; winolab.predict, bound"):
            ASKED[name](X, W, algorithm=text)


@every
def test_no_precision_is_fp32(name: str) -> None:
    assert told(ASKED[name](X, W, precision=None)) == told(ASKED[name](X, W, precision="fp32"))
