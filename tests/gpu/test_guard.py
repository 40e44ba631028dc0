"""Split products watch their own results; what they cannot serve is computed again on FFMA."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.adversaries import DATA, made
from winolab.device import H100
from winolab.gpu import gamma, gamma_tensor, nvrtc
from winolab.gpu.guard import FLAGS, GuardedPlan
from winolab.nouns import Problem, direct
from winolab.ref import convolution, winograd
from winolab.ref.arithmetic import arithmetic

PROBLEM = Problem.of((2, 4, 9, 64), (64, 3, 3, 64), padding=1)


FLOOR = 10 * 2**-24  # relative RMS: what products of 22 bits have


def _guarded(problem: Problem, direction: str) -> GuardedPlan:
    split, ffma = (
        min(
            module.plans(problem, direction, H100, None, precision, aligned=True),
            key=lambda plan: plan.predicted,
        )
        for module, precision in ((gamma_tensor, "fp32_split"), (gamma, "fp32"))
    )
    return GuardedPlan(split, ffma)


def _errors(got: np.ndarray, exact: np.ndarray | int, axis: int) -> np.ndarray:
    """Root mean squares along all other axes."""
    other = tuple(i for i in range(got.ndim) if i != axis)
    return np.sqrt(np.mean((got - exact) ** 2, axis=other))


@pytest.mark.parametrize(
    ("name", "direction"),
    [(name, "forward") for name in DATA]
    + [(name, "backward_data") for name in ("wide exponents", "NaN", "a tiny output channel")],
)
def test_no_accuracy_is_lost(name: str, direction: str) -> None:
    """FFMA's very bits where data are too wide; else, of every image and of every channel, at
    most twice the error of direct summation, which is next to none of a single large product."""
    forward = direction == "forward"
    a, b = made(name, PROBLEM.x_shape if forward else PROBLEM.y_shape, PROBLEM.w_shape)
    plan = _guarded(PROBLEM, direction)
    got = hosted.execute(plan, a, b)
    again = hosted.execute(plan.fallback, a, b)
    if DATA[name][1]:
        np.testing.assert_array_equal(got, again)
        return
    assert not np.array_equal(got, again) or not got.any()
    oracle = convolution.forward if forward else convolution.backward_data
    exact = oracle(a, b, PROBLEM)
    in_order = getattr(winograd, direction)(a, b, PROBLEM, direct(), arithmetic("fp32"))
    for axis in (0, -1):
        own, of_order = (_errors(v, exact, axis) for v in (got, in_order))
        assert (own <= np.maximum(2 * of_order, FLOOR * _errors(exact, 0, axis))).all()


def test_both_units_compile_as_one() -> None:
    plan = _guarded(PROBLEM, "forward")
    resources = nvrtc.compile_cubin(plan.source(), "sm_90a").resources
    assert set(resources) == set(plan.shared())
    assert {n for n in plan.shared() if n.endswith("_fallback")} == {
        "winolab_filter_fallback",
        "winolab_gamma_fallback",
    }


def test_the_fallback_spares_the_flags_alone() -> None:
    plan = _guarded(PROBLEM, "forward")
    assert plan.workspace == max(plan.split.workspace, FLAGS + plan.fallback.workspace)
    assert plan.predicted > plan.split.predicted
    assert "fallback" in str(plan)
