"""Layers of few channels that are summed: problems, and plans that all tests of patches share."""

from __future__ import annotations

from typing import Any

from tests.gpu.families.direct.cases import layer
from tests.gpu.families.thin.cases import PROBLEMS as THIN
from winolab.algorithm import Algorithm, Problem
from winolab.device import H100
from winolab.gpu.families.patches import plan as patches
from winolab.gpu.families.patches.plan import PatchesPlan
from winolab.gpu.planner.request import Request

DIRECTIONS = ("forward", "backward_data")
PRECISIONS = ("fp16", "bf16")
# Rows of x that are copied in vectors of 8 and of 4 numbers, and those that are not; pairs that
# begin with odd numbers by the stride and by the padding; several vectors of a pixel; channels of
# each size of vectors; dilation of an even number of channels; more channels than a block has.
PROBLEMS = {
    **THIN,
    "rows of 8": layer((2, 9, 16, 3), 32, (3, 3), padding=1),
    "rows of 8, stride 2": layer((2, 9, 16, 3), 32, (7, 7), padding=3, stride=2),
    "rows of 4": layer((1, 9, 12, 1), 32, (3, 3), padding=1),
    "no lead": layer((1, 12, 16, 3), 32, (4, 4), padding=1, stride=4),
    "depths": layer((1, 5, 6, 32, 1), 32, (3, 3, 3), padding=1),
    "2 of dilation": layer((1, 9, 12, 2), 40, (3, 3), padding=1, dilation=2),
    "4 of stride 2": layer((1, 9, 12, 4), 40, (3, 5), padding=2, stride=2),
    "5": layer((1, 9, 8, 5), 40, (3, 5), padding=1),
    "6": layer((1, 9, 12, 6), 40, (3, 5), padding=2),
    "7 of stride 2": layer((1, 9, 8, 7), 40, (2, 2), padding=1, stride=2),
    "16, 1x1": layer((2, 9, 15, 16), 24, (1, 1)),
    "48, 1x1": layer((1, 9, 15, 48), 136, (1, 1), padding=1),
    "long of 5": layer((2, 400, 1), 136, (10,), stride=5),
    "long of 2": layer((2, 400, 1), 64, (10,), stride=2, padding=3),
}


def offered(
    problem: Problem, direction: str, precision: str, algorithm: Algorithm | None = None, **how: Any
) -> list[PatchesPlan]:
    """Every plan of the family."""
    return list(patches.plans(Request(problem, direction, H100, algorithm, precision, **how)))


def served(direction: str) -> list[str]:
    """Names of the problems that the family has plans for."""
    return [name for name in PROBLEMS if offered(PROBLEMS[name], direction, "fp16")]
