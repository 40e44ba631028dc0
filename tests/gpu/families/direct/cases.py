"""Direct products with strides and dilation: problems, and plans that all of them share."""

from __future__ import annotations

from typing import Any

from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.families.direct import plan as direct
from winolab.gpu.families.direct.plan import DirectPlan
from winolab.gpu.planner.request import Request

DIRECTIONS = ("forward", "backward_data")


def layer(x: tuple[int, ...], out_channels: int, taps: tuple[int, ...], **how: Any) -> Problem:
    channels = x[-1] // how.get("groups", 1)
    return Problem.of(x, (out_channels, *taps, channels), **how)


# Maps of one to three dimensions and odd sizes; smaller than the filter; strides beyond it, by
# which inputs meet no tap, and beyond a copy's steps; dilation that has factors in common with the
# stride; one-sided and negative padding; inputs behind the last output; channels that 64 does not
# divide.
PROBLEMS = {
    "3x3 stride 2": layer((2, 9, 12, 72), 72, (3, 3), stride=2, padding=1),
    "1x1 stride 2": layer((3, 8, 7, 16), 136, (1, 1), stride=2),
    "7x7 stride 2": layer((1, 15, 14, 8), 16, (7, 7), stride=2, padding=3),
    "stride 2, 1": layer((2, 9, 10, 8), 8, (3, 3), stride=(2, 1), padding=1),
    "stride 3, 2": layer((1, 11, 12, 8), 16, (4, 3), stride=(3, 2), padding=((2, 0), (1, 3))),
    "stride beyond the filter": layer((1, 9, 11, 16), 8, (2, 1), stride=(3, 4), padding=(1, 0)),
    "stride beyond a copy's": layer((2, 25, 12, 8), 8, (10, 3), stride=(9, 10), padding=(0, 2)),
    "dilation": layer((1, 13, 12, 8), 16, (3, 3), dilation=(3, 2), padding=(3, 2)),
    "dilation and stride": layer((1, 13, 14, 8), 8, (3, 3), dilation=2, stride=(2, 3), padding=2),
    "common factors": layer((1, 23, 8), 16, (4,), dilation=4, stride=6, padding=((5, 7),)),
    "small map": layer((2, 3, 2, 16), 8, (5, 5), stride=2, padding=3),
    "causal": layer((2, 37, 16), 8, (4,), stride=2, dilation=3, padding=((9, 0),)),
    "three dimensions": layer((2, 5, 6, 7, 8), 8, (3, 2, 3), stride=(1, 2, 2), padding=1),
    "stride in depth": layer(
        (1, 7, 4, 5, 8), 16, (3, 3, 3), stride=(2, 1, 1), padding=((2, 0), 1, 1)
    ),
    "groups": layer((2, 7, 9, 16), 32, (3, 3), stride=2, padding=1, groups=2),
    "cut": Problem(1, 8, 8, (9, 10), (3, 3), (2, 2), ((-1, 2), (1, -2)), (1, 1), 1),
}


def offered(problem: Problem, direction: str, precision: str, **how: Any) -> list[DirectPlan]:
    """Every plan of the family."""
    return list(direct.plans(Request(problem, direction, H100, None, precision, **how)))
