"""What the functions that need no arrays understand alike, and refuse with the same words."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
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


def test_what_is_no_flag_and_no_algorithm_is_refused() -> None:
    refused: list[tuple[Callable[..., Any], dict[str, Any], type[Exception], str]] = [
        (winolab.cost, {"algorithm": 3}, TypeError, "algorithm is of type int; expected an Alg"),
        (winolab.cost, {"algorithm": [3]}, TypeError, "algorithm is of type int; expected an Alg"),
        (winolab.cost, {"algorithm": []}, ValueError, "algorithm is an empty list; expected"),
        (winolab.cost, {"compare": "no"}, TypeError, "compare is 'no'; expected True or False"),
        (winolab.accuracy, {"gpu": "no"}, TypeError, "gpu is 'no'; expected True or False"),
    ]
    for asked, how, error, said in refused:
        with pytest.raises(error, match=f"^{said}"):
            asked(X, W, **how)
    how: dict[str, Any] = {"algorithm": iter(("direct", winolab.dwm())), "compare": np.bool_(False)}
    assert [row["algorithm"] for row in winolab.cost(X, W, **how).rows] == ["direct", "dwm:3:2"]


@every
def test_a_layer_without_results_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="leave nothing to compute; expected sizes above 0"):
        ASKED[name]((2, 0, 10, 4), W)


def test_more_than_the_memory_holds_is_refused() -> None:
    large = (2**40, 2**20, 2**20, 2**20)
    with pytest.raises(ValueError, match="B of memory; expected smaller sizes"):
        winolab.accuracy(large, (8, 3, 3, 2**20))


def test_transforms_are_equivalent_to_transforms() -> None:
    other: Any = 3
    with pytest.raises(TypeError, match=r"^an int is compared; expected Transforms"):
        winolab.transforms(2, 3).equivalent(other)


@pytest.mark.parametrize("element", [np.nan, np.inf])
def test_data_that_are_not_finite_are_refused_or_told(element: float) -> None:
    x, w = np.ones(X, "f4"), np.ones(W, "f4")
    x[0, 0, 0, 0] = x[1, 2, 3, 0] = element
    for name in ("predict", "accuracy"):
        with pytest.raises(ValueError, match=r"^x of data holds 2 elements that are NaN or inf"):
            ASKED[name](X, W, data=(x, w))
    shown = str(winolab.tolerance(X, W, data=(x, w)))
    assert "not finite     2 elements of x are NaN or infinite, and zero for these" in shown
    assert "nothing is proven" in str(winolab.bound(X, W, data=(x, w)))
    clean = np.ones(X, "f4"), w
    assert "not finite" not in str(winolab.tolerance(X, W, data=clean))


@pytest.mark.parametrize("name", ["predict", "bound", "tolerance", "accuracy"])
def test_moments_that_no_data_have_are_refused(name: str) -> None:
    for mean, variance in ((np.nan, 1.0), (0.0, np.inf), (0.0, -1.0)):
        with pytest.raises(ValueError, match=r"^data has mean .* expected finite numbers"):
            ASKED[name](X, W, data=winolab.Moments(mean, variance))
    text: Any = "a"
    with pytest.raises(TypeError, match=r"^data has mean 'a' and variance 1\.0; expected numbers"):
        ASKED[name](X, W, data=winolab.Moments(text, 1.0))
    with pytest.raises(ValueError, match="an array without elements has no moments"):
        winolab.Moments.of(np.zeros(0))


def test_tolerances_tell_of_an_overflow() -> None:
    """Results of 36 products of numbers near 1000 are beyond float16; of numbers near 1, not."""
    for scale, chance in ((1.0, 0.0), (1000.0, 1.0)):
        arrays = tuple(np.full(shape, scale, "f4") for shape in (X, W))
        moments = winolab.Moments(scale, scale**2 / 100)
        for data in (arrays, moments):
            found = winolab.tolerance(X, W, data=data, precision="fp16")
            assert found.overflow == found.to_dict()["overflow"] == pytest.approx(chance, abs=1e-9)
            assert ("overflow       1 of any result" in str(found)) == (chance == 1)
            wide = winolab.tolerance(X, W, data=data, precision="fp16", out_dtype="float32")
            assert wide.overflow == pytest.approx(0.0, abs=1e-9)


@every
@pytest.mark.parametrize("algorithm", ["omega:8:3:6", "winrs"])
def test_filter_gradients_are_refused_in_other_directions(name: str, algorithm: str) -> None:
    for direction in ("forward", "backward_data"):
        with pytest.raises(
            ValueError, match=r"^omega and winrs compute filter gradients only; for"
        ):
            ASKED[name](X, W, algorithm=algorithm, direction=direction)


def test_a_precision_that_there_is_not_is_called_so() -> None:
    for name in ASKED:
        with pytest.raises(ValueError, match=r"^(unknown )?precision 'foo'"):
            ASKED[name](X, W, precision="foo")
        for value in (3, [], b"fp32"):
            with pytest.raises(
                (TypeError, ValueError), match=r"^precision (is of type|.*; expect)"
            ):
                ASKED[name](X, W, precision=value)


@every
def test_no_precision_is_fp32(name: str) -> None:
    assert told(ASKED[name](X, W, precision=None)) == told(ASKED[name](X, W, precision="fp32"))
