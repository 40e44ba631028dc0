"""Direct filter gradients of 16-bit data, positions end to end: results against FP64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.gpu.support.gradients import asked
from tests.gpu.support.halves import on_cpu, on_gpu, problems, too_far
from winolab.algorithm import Problem
from winolab.gpu.families.wgrad_direct.config import NARROW, NarrowConfig
from winolab.gpu.families.wgrad_direct.plan import WgradNarrowPlan, narrow_plans

Execute = Callable[[WgradNarrowPlan, np.ndarray, np.ndarray], np.ndarray]


def planned(problem: Problem, precision: str, config: NarrowConfig, kind: str) -> WgradNarrowPlan:
    return asked(narrow_plans, precision, problem, config=config, out_dtype=kind)


def cut(p: WgradNarrowPlan, segments: int) -> WgradNarrowPlan:
    bucket = 4 * p.gradient.weights
    return replace(p, segments=segments, workspace=bucket * segments if segments > 1 else 0)


@pytest.mark.parametrize("execute", [on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("config", NARROW, ids=str)
def test_gradients_are_those_of_fp64(config, execute: Execute) -> None:
    for problem, precision, kind, x, dy in problems():
        for segments in (1, 3):
            p = cut(planned(problem, precision, config, kind), segments)
            assert too_far(p, x, dy, execute(p, x, dy)) <= 1
