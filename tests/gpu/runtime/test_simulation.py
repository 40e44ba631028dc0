"""Simulations whose sums are a kernel's, run here on the CPU: the rows of NumPy's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

import winolab
from tests.gpu.support.simulated import pretend
from winolab.cli import process, sweep
from winolab.cli.command import app
from winolab.gpu.codegen.simulated_tiles import FP64, STATES
from winolab.gpu.machine import MachineError


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that a pretended GPU loaded."""
    return pretend(monkeypatch)


@pytest.mark.parametrize(
    ("precision", "algorithm"),
    [
        ("fp32", "winograd:2x2:3x3"),
        ("fp16@hopper", "gamma:4:2:3"),
        ("fp32_split", "direct"),
        ("fp32,accumulation=kahan", "direct"),
    ],
)
def test_gpu_has_numpys_row(pretended: list[str], precision: str, algorithm: str) -> None:
    how: dict[str, Any] = {"algorithm": algorithm, "precision": precision, "data": "u12"}
    same(
        *(
            winolab.accuracy((1, 9, 9, 12), (5, 3, 3, 12), gpu=gpu, sample=40, **how).to_dict()
            for gpu in (False, True)
        ),
        products=9 * 12,
    )


def same(here: dict[str, Any], there: dict[str, Any], products: int) -> None:
    """Rows of U[1, 2] without padding agree but for their oracles, two orders of K sums in FP64.

    These differ by at most 2 γ_K |y|, |y| at most 4 K; proven bounds are K² 2⁻²⁴ and more. Those of
    a GPU may be a thousandth larger: of operands they know a bound.
    """
    relative = 2 * products * 2.0**-53
    absolute = 4 * products * relative
    tolerances = {
        "max_abs": absolute,
        "bias": absolute,
        "mse": 2 * here["max_abs"] * absolute,
        "bound": 1e-3 * here["bound"],
        "bound_ratio": absolute / (products**2 * 2.0**-24) + 1e-3 * here["bound_ratio"],
    }
    quantiles = [name for name in here if name.startswith("q")]
    relatives = ["mare", "max_relative", "relative_rms", "relative_bias", *quantiles]
    tolerances |= dict.fromkeys(relatives, relative)
    assert here.keys() == there.keys()
    for name in here.keys() - {"seconds"}:
        if name in tolerances:
            assert abs(here[name] - there[name]) <= tolerances[name], name
        else:
            assert repr(here[name]) == repr(there[name]), name  # NaN too


def test_the_command_sums_on_a_gpu(pretended: list[str]) -> None:
    layer = ["--input", "1x7x7x8", "--filter", "4x3x3", "--sample", "full", "--json"]
    found = []
    for more in ([], ["--gpu"]):
        said = CliRunner().invoke(app, ["accuracy", "--algorithm", "direct", *layer, *more])
        (row,) = json.loads(said.stdout)
        found.append(row)
    same(*found, products=9 * 8)
    assert {STATES, FP64} <= set(pretended)


def test_a_long_sweep_says_how_long_a_gpu_takes(
    pretended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that is short says nothing; Dask's workers have no part in it."""
    layer = ["accuracy", "--algorithm", "direct", "--input", "1x7x7x8", "--filter", "4x3x3"]
    assert "about" not in CliRunner().invoke(app, [*layer, "--gpu"]).stderr
    monkeypatch.setattr(sweep, "RATE_ON_GPU", 100.0)
    said = CliRunner().invoke(app, [*layer, "--gpu"]).stderr
    seconds = 25 * 4 * 9 * 8 / 100
    assert f"winolab: 1 cases, about {process.duration(seconds)} on a GPU" in said
    refused = CliRunner().invoke(app, [*layer, "--gpu", "--dask", "local"])
    assert "give one of the two" in str(refused.exception)


def test_what_stays_on_the_cpu_is_refused_in_a_line(pretended: list[str]) -> None:
    for precision in ("exact", "mp:200", "fp64"):
        with pytest.raises(ValueError, match=f"precision {precision} is computed on the CPU alone"):
            winolab.accuracy((1, 7, 7, 8), (4, 3, 3, 8), precision=precision, gpu=True)


def test_without_a_gpu_it_says_what_is_missing() -> None:
    with pytest.raises(MachineError, match="CuPy"):
        winolab.accuracy((1, 7, 7, 8), (4, 3, 3, 8), gpu=True)
