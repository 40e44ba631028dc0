"""How errors of whole batches are taken, with NumPy in the GPU's place."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.measure import errors as gpu_errors
from tests.support.stand_in import CuPy
from winolab.bench import oracle
from winolab.bench.contenders import Arrays, Contender
from winolab.bench.layers import Layer
from winolab.gpu import driver

LAYER = Layer(6, (8, 8), 64, 4, 9, (16, 8, 9))


@pytest.fixture
def host(monkeypatch):
    """NumPy in CuPy's place."""
    monkeypatch.setattr(driver, "cupy", CuPy)
    monkeypatch.setattr(gpu_errors, "free", lambda: None)


def contender(off: float) -> Contender:
    """Computes in FP64 with a relative error."""

    def run(arrays: Arrays, workspace: int) -> None:
        x, w = (np.asarray(a) for a in arrays.operands["NHWC"])
        y = np.asarray(oracle.fp64("forward", LAYER.problem, x, w)) * (1 + off)
        arrays.results["NHWC"][...] = y

    labels = {"method": "winolab", "kernel": "Γ16(8,9)", "products": "fp32", "points": "best"}
    return Contender("ours", "NHWC", 0, labels, run)


@pytest.mark.parametrize("data", ["u12", "relu", "wide"])
def test_errors_of_images_spread_over_the_batch(host, monkeypatch, data: str) -> None:
    monkeypatch.setattr(gpu_errors, "contenders", lambda *_: [contender(1e-5)])
    monkeypatch.setattr(gpu_errors, "FLOP", 3 * 2 * LAYER.problem.macs / LAYER.batch)
    assert gpu_errors.images(LAYER) == [0, 2, 4]
    (row,) = gpu_errors.measured(LAYER, data, {})
    assert row["images"] == 3
    assert row["relative_rms"] == pytest.approx(1e-5, rel=0.02)
    if data == "u12":
        assert row["mare"] == pytest.approx(1e-5, rel=0.02)
        assert sum(row["histogram"]) == 3 * 8 * 8 * 4
    else:
        assert "mare" not in row


def test_data_are_those_of_the_reference(host) -> None:
    arrays = Arrays("forward", LAYER.problem, "fp32")
    gpu_errors.fill(arrays, "relu")
    x = np.asarray(arrays.operands["NHWC"][0])
    assert 0.4 < np.mean(x == 0) < 0.6
    gpu_errors.fill(arrays, "wide")
    x = np.abs(np.asarray(arrays.operands["NHWC"][0]))
    assert np.quantile(x, 0.9) / np.quantile(x, 0.1) > 1e3


def test_a_part_of_a_name_chooses_cases() -> None:
    every, some = list(gpu_errors.todo()), list(gpu_errors.todo("3x3 relu"))
    assert 0 < len(some) < len(every)
    assert all(str(layer).endswith("3x3") and data == "relu" for layer, data in some)
    assert set(some) <= set(every)
