"""Errors of the fused kernel: the plans of a layer, and what is predicted beside what the source
errs on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.measure.fused import errors
from tests.gpu import hosted
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.families.fused2d.plan import Fused2dPlan
from winolab.ref.algorithms import convolution

LAYER = Problem.of((1, 12, 10, 64), (64, 3, 3, 64), padding=1)


def test_every_kind_of_sum_is_among_the_plans() -> None:
    found = list(errors.plans(LAYER, H100))
    assert [(p.direction, p.precision) for p in found] == [
        *[("forward", "fp32")] * 3, ("forward", "fp16_ffma"), ("forward", "fp32_split"),
        ("backward_data", "fp32"), ("backward_filter", "fp32"),
    ]  # fmt: skip
    fused = [p for p in found if isinstance(p, Fused2dPlan)]
    assert [p.split_k for p in fused[:4]] == [1, 1, 4, 1]
    assert all(errors.predicted(p, "u11")["predicted_rms"] > 0 for p in found)


@pytest.mark.parametrize("data", errors.ENDS)
def test_the_prediction_and_the_reference_are_what_the_source_errs(data: str) -> None:
    """Within a fifth; the reference bit for bit, where the sum is whole."""
    rng = np.random.default_rng(0)
    found = list(errors.plans(LAYER, H100))
    for p in (*found[:4], found[5]):
        assert isinstance(p, Fused2dPlan)
        assert not p.gradient
        x, w = (rng.uniform(*errors.ENDS[data], s).astype(p.dtype)
                for s in (LAYER.x_shape, LAYER.w_shape))  # fmt: skip
        y = hosted.execute(p, x, w, dtype=p.out_dtype)
        exact = getattr(convolution, p.direction)(x.astype(float), w.astype(float), LAYER)
        erred = errors.errors(y.astype(float), exact, data)
        for name, value in errors.predicted(p, data).items():
            assert value == pytest.approx(erred[name.removeprefix("predicted_")], rel=0.2)
        if p.split_k == 1:
            mine = errors.simulated(p, x[0].astype("f"), w.astype("f"))
            assert np.array_equal(mine, y[0].astype("f"))
