"""Problems of one tap, and plans for them."""

from __future__ import annotations

from typing import Any

import winolab
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.families.cublaslt import plan as cublaslt
from winolab.gpu.families.cublaslt.plan import NAMED, CublasltPlan
from winolab.gpu.params import PRODUCT, Params
from winolab.gpu.planner.request import Request
from winolab.problem import shapes

CORRELATIONS = ("forward", "backward_data")
DIRECTIONS = (*CORRELATIONS, "backward_filter")
PRECISIONS = ("fp32", "fp16", "bf16")
# Channels that vectors divide and that none does; fewer pixels than channels; one of each.
PROBLEMS = {
    "row": Problem.of((3, 40, 16), (24, 1, 16)),
    "map": Problem.of((2, 5, 7, 64), (32, 1, 1, 64)),
    "depths": Problem.of((2, 3, 4, 5, 24), (40, 1, 1, 1, 24)),
    "odd channels": Problem.of((2, 5, 6, 13), (7, 1, 1, 13)),
    "one input channel": Problem.of((2, 6, 5, 1), (9, 1, 1, 1)),
    "one output channel": Problem.of((2, 6, 5, 11), (1, 1, 1, 11)),
    "one pixel": Problem.of((1, 1, 1, 200), (72, 1, 1, 200)),
    "dilation": Problem.of((2, 5, 6, 8), (16, 1, 1, 8), dilation=3),
}
# One image, whose pixels vectors of all dtypes divide, of FP32 alone, or of none.
IMAGES = {
    "row": Problem.of((1, 40, 16), (24, 1, 16)),
    "map": Problem.of((1, 4, 6, 64), (32, 1, 1, 64), dilation=2),
    "depths": Problem.of((1, 3, 4, 5, 24), (40, 1, 1, 1, 24)),
    "odd": Problem.of((1, 7, 7, 13), (7, 1, 1, 13)),
    "column": Problem.of((1, 8, 1, 11), (9, 1, 1, 11)),
    "one pixel": Problem.of((1, 1, 1, 20), (72, 1, 1, 20)),
    "one output channel": Problem.of((1, 6, 5, 11), (1, 1, 1, 11)),
}
# Several, of the same; each image's products.
BATCHES = {
    name: Problem.of((3, *p.x_shape[1:]), p.w_shape, dilation=p.dilation)
    for name, p in IMAGES.items()
}


def offered(problem: Problem, direction: str, precision: str, **how: Any) -> list[CublasltPlan]:
    """Every plan of the family, by its name."""
    return list(cublaslt.plans(Request(problem, direction, H100, NAMED, precision, **how)))


def called(direction: str, problem: Problem, a: Any, b: Any, **how: Any) -> Any:
    """The public call."""
    third = () if direction == "forward" else (shapes(direction, problem)[2],)
    how = {"algorithm": str(NAMED), "dilation": problem.dilation, **how}
    return getattr(winolab, f"conv_{direction}")(a, b, *third, **how)


def packed(params: Params) -> dict[str, Any]:
    """The struct's values by name."""
    return {n: v for (n, _), v in zip(PRODUCT.fields, params.values, strict=True)}
