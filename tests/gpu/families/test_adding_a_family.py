"""What adding a family of kernels costs: a folder (tests/support/trial_family) and an entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.support.trial_family import plan as trial
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.codegen import emit
from winolab.gpu.families.registry import FAMILIES, Family
from winolab.gpu.planner import planner
from winolab.gpu.planner.request import Request
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.proven import proven

SHAPES = (2, 5, 7, 6), (4, 1, 1, 6)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The family among the others: its folder beside theirs, its entry behind theirs."""
    own = Path(trial.__file__).parent
    for folder in (*(f for f in emit.FAMILIES.iterdir() if f.is_dir()), own):
        (tmp_path / folder.name).symlink_to(folder, target_is_directory=True)
    entry = Family("trial_family", trial.plans, trial.Config, ("forward",), ("fp32",))
    monkeypatch.setattr(emit, "FAMILIES", tmp_path)
    monkeypatch.setattr(planner, "FAMILIES", (*FAMILIES, entry))
    planner.plan.cache_clear()
    yield
    planner.plan.cache_clear()


def test_it_is_planned_and_its_kernel_computes(registered: None) -> None:
    problem = Problem.of(*SHAPES)
    p = planner.plan(Request(problem, "forward", H100))
    assert isinstance(p, trial.TrialPlan)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in SHAPES)
    exact = winolab.conv_forward(x.astype(float), w.astype(float))
    bound = proven(x, w, problem, p.algorithm, arithmetic(p.simulated))
    assert (np.abs(hosted.execute(p, x, w) - exact) <= bound).all()


def test_the_public_door_shows_it(registered: None) -> None:
    found = winolab.plan(*SHAPES)
    plan = found.to_dict()["plan"]
    assert (plan["kernel"], plan["workspace_bytes"]) == ("trial", 0)
    assert "trial 128 threads" in str(found)


def test_it_says_why_it_does_not_serve(registered: None) -> None:
    x, w = (1, 8, 8, 16), (8, 3, 3, 16)
    choice = planner.candidates(Request(Problem.of(x, w), "forward", H100))
    assert "trial kernels have one tap" in choice.reasons
    assert not any(isinstance(p, trial.TrialPlan) for p in choice.plans)


def test_it_is_gone_when_it_is_not_registered() -> None:
    assert winolab.plan(*SHAPES).to_dict()["plan"]["kernel"] != "trial"
