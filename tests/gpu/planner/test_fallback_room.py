"""Which fallback split products have, in what workspace: no kernel runs here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.planner.fallback import FLAGS, PlanWithFallback, with_fallback
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import DIRECTIONS, Request


def planned(workspace: int, predicted: float = 1.0) -> Any:
    plan: Any = SimpleNamespace(
        workspace=workspace,
        predicted=predicted,
        direction="backward_filter",
        problem=None,
        checks_accuracy=True,
        accurate=True,
        checked_correlation=None,
        fallback_correlation=None,
    )
    plan.fallback_launches = plan
    return plan


@pytest.mark.parametrize(
    ("room", "fallback"),
    [(1001, "fast"), (1000, "lean"), (999, "none"), (0, "none"), (-1, "none")],
)
def test_a_fallback_is_the_fastest_behind_the_flags_or_the_smallest(room, fallback) -> None:
    """The flags stay what they are while it runs."""
    plans = {"fast": planned(1001, 1.0), "lean": planned(1000, 2.0), "none": planned(0, 9.0)}
    split = planned(FLAGS + room)
    (found,) = with_fallback([split], [*plans.values()], named=False)
    assert found.fallback is plans[fallback]
    assert found.workspace == max(split.workspace, FLAGS + plans[fallback].workspace)


def test_a_workspace_holds_the_fallbacks_behind_the_flags() -> None:
    (found,) = with_fallback([planned(10)], [planned(2000)], named=False)
    assert found.workspace == FLAGS + 2000


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_only_what_can_run_behind_flags_is_a_fallback(direction: str) -> None:
    """Depthwise kernels, which are the fastest here, run at once whatever the flags say."""
    problem = Problem.of((2, 8, 8, 64), (64, 7, 7, 1), padding=3, groups=64)
    request = Request(problem, direction, H100)
    found = candidates(request).plans
    behind = [p.fallback for p in found if p.fallback]
    assert behind
    assert all(p.fallback_correlation or p.fallback_launches for p in behind)
    depthwise = plan(request)
    assert not depthwise.fallback
    with pytest.raises(ValueError, match="is no fallback of"):
        PlanWithFallback.of(depthwise, depthwise)
