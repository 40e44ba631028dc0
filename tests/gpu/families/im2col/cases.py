"""Problems of direct products whose copies walk positions, and plans for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.gpu import hosted
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.families.im2col.config import Config
from winolab.gpu.families.im2col.plan import Im2colPlan, plans
from winolab.gpu.planner.request import Request

FORTH, BACK = DIRECTIONS = ("forward", "backward_data")


def layer(x: tuple[int, ...], filters: int, taps: tuple[int, ...], **how: Any) -> Problem:
    return Problem.of(x, (filters, *taps, x[-1] // how.get("groups", 1)), **how)


# Maps of one to three dimensions and odd sizes, smaller than the filter, of few positions and many;
# channels that 64 does not divide; one-sided, negative and no padding; dilation; groups; a depth
# that padding makes.
UNIT = {
    "3x3": layer((2, 9, 12, 72), 72, (3, 3), padding=1),
    "1x1": layer((3, 8, 7, 136), 40, (1, 1)),
    "one pixel": layer((1, 1, 1, 200), 264, (1, 1)),
    "column": layer((2, 19, 5, 24), 16, (7, 1), padding=(3, 0)),
    "causal": layer((2, 37, 16), 8, (4,), dilation=3, padding=((9, 0),)),
    "dilation": layer((1, 13, 12, 8), 16, (3, 3), dilation=(3, 2), padding=(3, 2)),
    "small map": layer((2, 3, 2, 16), 8, (5, 5), padding=3),
    "three dimensions": layer((2, 5, 6, 7, 40), 24, (3, 2, 3), padding=1),
    "depths of the padding": layer((1, 1, 6, 7, 8), 8, (1, 3, 3), padding=((0, 2), 1, 1)),
    "groups": layer((2, 7, 9, 128), 128, (3, 2), padding=1, groups=2),
    "cut": Problem(1, 8, 8, (9, 10), (3, 3), (1, 1), ((-1, 2), (1, -2)), (1, 1), 1),
}
STRIDED = {
    "3x3 stride 2": layer((2, 9, 12, 72), 72, (3, 3), stride=2, padding=1),
    "1x1 stride 2": layer((3, 8, 7, 16), 136, (1, 1), stride=2),
    "stride 3, 2": layer((1, 11, 12, 8), 16, (4, 3), stride=(3, 2), padding=((2, 0), (1, 3))),
    "stride beyond the filter": layer((1, 9, 11, 16), 8, (2, 1), stride=(3, 4), padding=(1, 0)),
    "stride in depth": layer(
        (1, 7, 4, 5, 8), 16, (3, 3, 3), stride=(2, 1, 2), padding=((2, 0), 1, 1)
    ),
    "patches": layer((2, 8, 12, 136), 40, (2, 2), stride=2),
}
PROBLEMS = UNIT | STRIDED
CASES = [(name, FORTH) for name in PROBLEMS] + [(name, BACK) for name in UNIT]


def planned(problem: Problem, direction: str, precision: str, config: Config) -> Im2colPlan:
    request = Request(problem, direction, H100, None, precision, config=config)
    (p,) = plans(request)
    return p


def on_cpu(p: Im2colPlan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return hosted.execute(p, a, b, dtype=p.out_dtype)
