"""Layers of few channels on one side: problems, and plans that all of them share."""

from __future__ import annotations

from typing import Any

from tests.gpu.families.direct.cases import layer
from winolab.algorithm import Algorithm, Problem
from winolab.device import H100
from winolab.gpu.families.thin import plan as thin
from winolab.gpu.families.thin.plan import ThinPlan
from winolab.gpu.planner.request import Request

DIRECTIONS = ("forward", "backward_data")
PRECISIONS = ("fp32", "fp16", "bf16")
# Few channels on either side and on both; one to three dimensions; strides beyond the filter, by
# which inputs meet no tap; dilation with factors in common; one-sided and negative padding; maps
# smaller than a work tile and larger; channels that no vector divides, and several chunks of them.
PROBLEMS = {
    "1x1 to 2": layer((3, 17, 19, 64), 2, (1, 1)),
    "3 to 32": layer((2, 7, 9, 5, 32), 3, (1, 1, 1)),
    "stem": layer((2, 9, 13, 3), 24, (3, 3), stride=2, padding=1),
    "stem of 7x7": layer((1, 15, 14, 3), 64, (7, 7), stride=2, padding=3),
    "patches": layer((2, 12, 16, 3), 40, (4, 4), stride=4),
    "one channel": layer((1, 5, 6, 7, 1), 32, (3, 3, 3), padding=1),
    "8 of 72": layer((1, 11, 12, 72), 8, (3, 3), padding=1),
    "odd": layer((2, 9, 10, 13), 5, (3, 2), padding=(0, (2, 1))),
    "16 of 21": layer((1, 9, 10, 16), 21, (3, 3), padding=1, stride=(1, 2)),
    "both few": layer((2, 10, 11, 3), 2, (5, 5), padding=2),
    "stride beyond the filter": layer((1, 9, 11, 16), 3, (2, 1), stride=(3, 4), padding=(1, 0)),
    "dilation and stride": layer((1, 13, 14, 8), 16, (3, 3), dilation=2, stride=(2, 3), padding=2),
    "common factors": layer((1, 23, 4), 16, (4,), dilation=4, stride=6, padding=((5, 7),)),
    "three dimensions": layer(
        (2, 5, 6, 7, 12),
        16,
        (3, 2, 3),
        stride=(2, 1, 3),
        dilation=(1, 2, 2),
        padding=((2, 0), 1, 2),
    ),
    "long": layer((2, 700, 1), 24, (10,), stride=5),
    "cut": Problem(1, 8, 8, (9, 10), (3, 3), (2, 2), ((-1, 2), (1, -2)), (1, 1), 1),
}


def offered(
    problem: Problem, direction: str, precision: str, algorithm: Algorithm | None = None, **how: Any
) -> list[ThinPlan]:
    """Every plan of the family."""
    return list(thin.plans(Request(problem, direction, H100, algorithm, precision, **how)))
