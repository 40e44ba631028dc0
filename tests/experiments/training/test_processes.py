"""Two processes beside one: what is hidden of the sum of gradients, and the table."""

from __future__ import annotations

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

import winolab.torch
from experiments.training import processes
from experiments.training.run import FUSED, PLANS
from experiments.training.tiles import OWN, tiled
from tests.experiments import gpu_rows
from winolab.gpu.runtime import nvrtc


def test_what_is_hidden_is_what_runs_beside_others() -> None:
    spans = [
        ("conv", (0.0, 1000.0)),
        ("conv", (1000.0, 3000.0)),
        ("ncclDevKernel_AllReduce", (2000.0, 3500.0)),
        ("ncclDevKernel_AllReduce", (4000.0, 5000.0)),
        ("norm", (4500.0, 4600.0)),
    ]
    found = processes.shares(spans, steps=2)
    assert found["kernels_ms"] == pytest.approx(3.1 / 2)
    assert found["sums_ms"] == pytest.approx(2.5 / 2)
    assert found["hidden_ms"] == pytest.approx(1.1 / 2)
    assert found["longest"] == {"conv": 1.5, "ncclDevKernel_AllReduce": 1.25, "norm": 0.05}
    assert processes.merged([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]


def test_eight_gpus_on_paper() -> None:
    """A ring of eight moves 1.75 times what one of two does: the bare part grows with it."""
    row = {"alone_ms": 30.0, "sums_ms": 4.0, "hidden_ms": 3.0, "kernels_ms": 30.0}
    assert processes.on_paper(row, 2) == pytest.approx(31.0)
    assert processes.on_paper(row, 8) == pytest.approx(31.75)
    long = row | {"sums_ms": 20.0, "hidden_ms": 20.0}  # longer than what hides it
    assert processes.on_paper(long, 8) == pytest.approx(30 + 35 - 20)


def rows(**more: float) -> list[dict]:
    methods = ["winolab", "torch"]
    two = [gpu_rows.trained(run, "two") | more for run in PLANS["two"](methods)]
    for row in two:
        row["batch"] = 64  # as two processes have it
    return two + [gpu_rows.trained(run, "one") for run in PLANS["one"](methods)]


def test_losses_and_times_stand_beside_one_gpu_s() -> None:
    given = rows(alone_ms=4.0, sums_ms=2.0, hidden_ms=1.5, kernels_ms=4.0)
    given[0]["losses"] = [2.0, 0.49]  # one of VGG-16's by winolab is off
    cells = processes.cells(given)
    assert len({c.where for c in cells}) == 4
    of = {c.column: c.ours for c in cells if c.where == "vgg16, winolab"}
    assert of["largest difference of losses from one GPU's, of the first"] == pytest.approx(0.005)
    assert of["of the speed of two"] == 1
    assert of["of it behind other kernels"] == 0.75
    exact = {c.ours for c in cells if c.column.startswith("largest") and "winolab" not in c.where}
    assert exact == {0}
    assert isinstance(processes.curves(given), Figure)
    alone = processes.cells([row for row in rows() if row["plan"] == "two"])
    assert {c.column for c in alone} == {"ms a step, two GPUs"}


def test_kernels_of_named_gradients_are_compiled_before_the_first_step(monkeypatch) -> None:
    made = []
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))
    monkeypatch.setattr("winolab.gpu.warm._compile", lambda unit: made.append(unit.title))
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.LeakyReLU())
    tiled(model, OWN, FUSED, None)
    winolab.torch.warmup(model.train(), torch.ones(2, 8, 16, 16), device="h100", progress=False)
    assert any("Ω8(3,6)" in title for title in made)
