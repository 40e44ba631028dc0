"""Filters of one tap that few positions meet: problems, and plans that tests share."""

from __future__ import annotations

import math
from typing import Any

from tests.gpu.families.cublaslt.cases import PROBLEMS as ONE_TAP
from winolab.algorithm import Algorithm, Problem
from winolab.device import H100
from winolab.gpu.families.skinny import plan as skinny
from winolab.gpu.families.skinny.config import POSITIONS
from winolab.gpu.families.skinny.plan import SkinnyPlan
from winolab.gpu.planner.request import Request

DIRECTIONS = ("forward", "backward_data", "backward_filter")
PRECISIONS = ("fp32", "fp16", "bf16")
# cuBLASLt's of few positions, and: one position; as many as there may be; more channels than the
# threads of a block take at once; fewer than a vector; one image's row.
PROBLEMS = {
    name: problem
    for name, problem in ONE_TAP.items()
    if math.prod(problem.y_shape[:-1]) <= POSITIONS
} | {
    "squeezed": Problem.of((1, 1, 1, 72), (24, 1, 1, 72)),
    "squeezed odd": Problem.of((5, 1, 1, 10), (27, 1, 1, 10)),
    "as many as may be": Problem.of((16, 2, 2, 24), (16, 1, 1, 24)),
    "long sums": Problem.of((3, 1, 1, 2304), (8, 1, 1, 2304)),
    "wide results": Problem.of((3, 1, 1, 16), (1160, 1, 1, 16)),
    "fewer than a vector": Problem.of((2, 1, 3, 2), (3, 1, 1, 2)),
    "row of 49": Problem.of((1, 49, 40), (56, 1, 40)),
}


def offered(
    problem: Problem, direction: str, precision: str, algorithm: Algorithm | None = None, **how: Any
) -> list[SkinnyPlan]:
    """Every plan of the family."""
    return list(skinny.plans(Request(problem, direction, H100, algorithm, precision, **how)))
