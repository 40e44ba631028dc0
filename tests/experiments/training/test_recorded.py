"""Tensors recorded while a network trains: they are what its layers multiplied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.training import recorded
from experiments.training.recorded import Recorder, planned
from experiments.training.runs import Run
from experiments.training.trainer import train
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu import driver
from winolab.ref.algorithms import convolution

TINY = Run("tiny", 16, images=32, tested=0, steps=3, batch=8, rate=0.01, method="torch")


def test_a_layer_s_recorded_tensors_make_its_gradient() -> None:
    """Rows are of the steps and layers asked for; the run is the same as without."""
    recorder = Recorder(steps=(0, 2), layers=3)
    told = train(TINY, "cpu", recorder)
    assert told["losses"] == train(TINY, "cpu")["losses"]
    records = recorder.records
    assert [r.step for r in records] == [0] * 3 + [2] * 3
    assert len({r.name for r in records}) == 3
    for r in records:
        assert r.dw is not None
        pair: Any = (r.x, r.dy)
        x, dy = (t.double().permute(0, 2, 3, 1).numpy() for t in pair)
        dw = convolution.backward_filter(x, dy, r.problem)
        expected = r.dw.permute(0, 2, 3, 1).numpy()
        # sums of 8·16² products in FP32: 0.3·2⁻²⁴·√2048 of their size is 8e-7
        assert np.abs(dw - expected).max() <= 1e-5 * np.abs(expected).max()


def test_every_remedy_is_tried_on_what_was_recorded(monkeypatch) -> None:
    monkeypatch.setattr(driver, "device", lambda index: H100)
    problem = Problem.of((256, 32, 32, 64), (64, 3, 3, 64), padding=1)
    kinds = planned(problem)
    names = ["fused", "fused, FP16 sums"]
    both = [f"{name}, {remedy}" for name in names for remedy in ("one segment", "no scaling")]
    assert set(kinds.values()) == {*names, *both, "two launches", "picked"}
    each: Any
    for each, kind in kinds.items():
        if "segment" in kind:
            assert each.segments == 1
        if "fused" in kind:
            assert (each.scaling is None) == ("no scaling" in kind)
            assert (each.config.sums == 16) == ("FP16 sums" in kind)


@pytest.mark.parametrize("value", [1.5, float("inf"), float("nan")])
def test_a_row_holds_no_infinity(value) -> None:
    found = recorded._number(value)
    assert found == value if value == 1.5 else isinstance(found, str)
