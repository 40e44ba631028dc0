"""Filter gradients of grouped layers of few channels a group: problems, and plans that tests
share."""

from __future__ import annotations

from typing import Any

from tests.gpu.families.direct.cases import layer
from tests.gpu.families.grouped.cases import PROBLEMS as OTHERS
from winolab.algorithm import Algorithm, Problem
from winolab.device import H100
from winolab.gpu.families.wgrad_grouped import plan as wgrad_grouped
from winolab.gpu.families.wgrad_grouped.plan import WgradGroupedPlan
from winolab.gpu.planner.request import Request

PRECISIONS = ("fp16", "fp32_split", "bf16")
# Those of the other directions, and: groups that begin within a unit of 16 output channels; most
# channels that a unit meets; one channel of many on the other side; units that are not full.
PROBLEMS = OTHERS | {
    "groups of 12 and more": layer((1, 6, 9, 96), 96, (3, 3), padding=1, groups=8),
    "groups of 20": layer((1, 6, 9, 80), 80, (3, 3), padding=1, groups=4),
    "groups of 64": layer((1, 5, 6, 128), 128, (3, 3), padding=1, groups=2),
    "one channel to 2": layer((2, 6, 5, 24), 48, (3, 3), padding=1, groups=24),
    "3 groups of 8": layer((1, 9, 5, 24), 24, (3, 3), padding=1, groups=3),
}


def offered(
    problem: Problem, precision: str, algorithm: Algorithm | None = None, **how: Any
) -> list[WgradGroupedPlan]:
    """Every plan of the family."""
    request = Request(problem, "backward_filter", H100, algorithm, precision, **how)
    return list(wgrad_grouped.plans(request))
