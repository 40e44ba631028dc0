"""Filter gradients of layers of few channels on one side: problems, and plans that tests share."""

from __future__ import annotations

from typing import Any

from tests.gpu.families.direct.cases import layer
from tests.gpu.families.thin.cases import PROBLEMS as THIN
from winolab.algorithm import Algorithm, Problem
from winolab.device import H100
from winolab.gpu.families.wgrad_thin import plan as wgrad_thin
from winolab.gpu.families.wgrad_thin.config import FEW
from winolab.gpu.families.wgrad_thin.plan import WgradThinPlan
from winolab.gpu.planner.request import Request

PRECISIONS = ("fp32", "fp16", "bf16")
# Those of the other directions, and: more columns than threads of a block; several blocks of
# columns; more lanes than a block has; taps that no mask of 32 bits holds; x wide under a stride.
PROBLEMS = {
    name: problem
    for name, problem in THIN.items()
    if min(problem.in_channels, problem.out_channels) <= FEW
} | {
    "many taps": layer((1, 9, 9, 10, 8), 12, (4, 5, 4), padding=(2, 2, 1)),
    "long filter": layer((2, 90, 1), 20, (40,), padding=((20, 19),)),
    "wide": layer((1, 6, 7, 2), 264, (2, 2)),
    "few outputs, strided": layer((2, 11, 10, 24), 3, (3, 4), stride=(2, 3), padding=1),
    "few outputs, dilated": layer((1, 12, 13, 16), 2, (3, 3), dilation=(2, 3), padding=(2, 3)),
    "all steps": layer(
        (2, 5, 6, 7, 3),
        16,
        (3, 2, 3),
        stride=(2, 1, 3),
        dilation=(1, 2, 2),
        padding=((2, 0), 1, 2),
    ),
    "pixel": layer((1, 1, 1, 8), 40, (1, 1)),
}


def offered(
    problem: Problem, precision: str, algorithm: Algorithm | None = None, **how: Any
) -> list[WgradThinPlan]:
    """Every plan of the family."""
    request = Request(problem, "backward_filter", H100, algorithm, precision, **how)
    return list(wgrad_thin.plans(request))
