"""Grouped layers of few channels a group: problems, and plans that all of them share."""

from __future__ import annotations

from typing import Any

from tests.gpu.families.direct.cases import layer
from winolab.algorithm import Algorithm, Problem
from winolab.device import H100
from winolab.gpu.families.grouped import plan as grouped
from winolab.gpu.families.grouped.plan import GroupedPlan
from winolab.gpu.planner.request import Request

DIRECTIONS = ("forward", "backward_data")
PRECISIONS = ("fp16", "bf16")
# Groups of 2 to 32 channels, of as many on both sides and not; one to three dimensions; strides
# beyond the filter, by which inputs meet no tap; dilation with factors in common; one-sided and
# negative padding; maps smaller than a work tile and larger; bundles that no warp divides.
PROBLEMS = {
    "groups of 4": layer((2, 9, 11, 64), 64, (3, 3), padding=1, groups=16),
    "groups of 4, stride 2": layer((1, 14, 13, 32), 32, (3, 3), stride=2, padding=1, groups=8),
    "groups of 8": layer((1, 17, 18, 48), 48, (3, 3), padding=1, groups=6),
    "groups of 16": layer((1, 8, 9, 64), 64, (3, 3), padding=1, groups=4),
    "groups of 32": layer((1, 7, 6, 64), 64, (3, 3), padding=1, groups=2),
    "groups of 24": layer((1, 6, 7, 72), 72, (3, 2), stride=(2, 1), padding=1, groups=3),
    "groups of 12": layer((1, 6, 9, 48), 48, (1, 3), dilation=2, groups=4),
    "groups of 2": layer((1, 9, 8, 24), 24, (2, 3), padding=(0, 1), groups=12),
    "groups of 4 and 8": layer((1, 8, 10, 24), 48, (3, 3), padding=(1, (2, 0)), groups=6),
    "groups of 16 and 4": layer((2, 7, 9, 64), 16, (3, 3), stride=(1, 2), padding=1, groups=4),
    "groups of 8 and 32": layer((1, 5, 6, 16), 64, (2, 2), stride=2, groups=2),
    "1x1": layer((2, 5, 7, 32), 32, (1, 1), groups=8),
    "5x5": layer((1, 10, 9, 16), 16, (5, 5), padding=2, groups=4),
    "stride beyond the filter": layer(
        (1, 9, 11, 16), 16, (2, 1), stride=(3, 4), padding=(1, 0), groups=4
    ),
    "dilation and stride": layer(
        (1, 13, 14, 16), 16, (3, 3), dilation=2, stride=(2, 3), padding=2, groups=2
    ),
    "common factors": layer(
        (1, 23, 16), 16, (4,), dilation=4, stride=6, padding=((5, 7),), groups=4
    ),
    "causal": layer((2, 300, 32), 32, (7,), padding=((6, 0),), groups=8),
    "three dimensions": layer(
        (2, 5, 6, 7, 16), 16, (3, 2, 3), stride=(2, 1, 2), dilation=(1, 2, 1),
        padding=((2, 0), 1, 1), groups=4,
    ),
    "cut": Problem(1, 16, 16, (9, 10), (3, 3), (2, 2), ((-1, 2), (1, -2)), (1, 1), 4),
}  # fmt: skip


def offered(
    problem: Problem, direction: str, precision: str, algorithm: Algorithm | None = None, **how: Any
) -> list[GroupedPlan]:
    """Every plan of the family."""
    return list(grouped.plans(Request(problem, direction, H100, algorithm, precision, **how)))
