"""Simulations whose sums are a kernel's, run here on the CPU: the rows of NumPy's."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import winolab
from tests.gpu import hosted
from winolab.cli.command import app
from winolab.gpu import driver
from winolab.gpu.machine import MachineError
from winolab.gpu.runtime import simulation


def held(array: np.ndarray) -> Any:
    """A NumPy array as CuPy has its own."""
    return SimpleNamespace(array=array, data=SimpleNamespace(ptr=array.ctypes.data))


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose memory is NumPy's and whose kernels run on the CPU."""
    cupy = SimpleNamespace(
        asarray=held,
        empty=lambda shape, dtype: held(np.full(shape, np.nan, dtype)),
        asnumpy=lambda made: made.array,
        cuda=SimpleNamespace(Device=lambda: SimpleNamespace(id=0)),
    )
    monkeypatch.setattr(driver, "cupy", lambda: cupy)
    load = lambda source, title, shared, index: hosted.load(source, shared)  # noqa: E731
    monkeypatch.setattr(simulation, "load", load)


@pytest.mark.parametrize(
    ("precision", "algorithm"),
    [
        ("fp32", "winograd:2x2:3x3"),
        ("fp16@hopper", "gamma:4:2:3"),
        ("fp32_split", "direct"),
        ("fp32,accumulation=kahan", "direct"),
    ],
)
def test_gpu_has_numpys_row(pretended: None, precision: str, algorithm: str) -> None:
    how: dict[str, Any] = {"algorithm": algorithm, "precision": precision, "sample": 40}
    rows = [
        winolab.accuracy((1, 9, 9, 12), (5, 3, 3, 12), gpu=gpu, **how).to_dict()
        for gpu in (False, True)
    ]
    for row in rows:
        row.pop("seconds")
    assert repr(rows[0]) == repr(rows[1])  # NaN too


def test_the_command_sums_on_a_gpu(pretended: None) -> None:
    layer = ["--input", "1x7x7x8", "--filter", "4x3x3", "--sample", "full", "--json"]
    found = []
    for more in ([], ["--gpu"]):
        said = CliRunner().invoke(app, ["accuracy", "--algorithm", "direct", *layer, *more])
        (row,) = json.loads(said.stdout)
        found.append({name: value for name, value in row.items() if name != "seconds"})
    assert found[0] == found[1]


def test_what_stays_on_the_cpu_is_refused_in_a_line(pretended: None) -> None:
    for precision in ("exact", "mp:200", "fp64"):
        with pytest.raises(ValueError, match=f"precision {precision} is computed on the CPU alone"):
            winolab.accuracy((1, 7, 7, 8), (4, 3, 3, 8), precision=precision, gpu=True)


def test_without_a_gpu_it_says_what_is_missing() -> None:
    with pytest.raises(MachineError, match="CuPy"):
        winolab.accuracy((1, 7, 7, 8), (4, 3, 3, 8), gpu=True)
