"""Problems of the implicit GEMM: strides, dilation, groups, few channels."""

from __future__ import annotations

from tests.gpu.families.direct.cases import PROBLEMS as STRIDED
from tests.gpu.families.direct.cases import layer
from winolab.algorithm import Problem
from winolab.device import H100, Device
from winolab.gpu.families.implicit_gemm import plan as implicit_gemm
from winolab.gpu.families.implicit_gemm.plan import ImplicitGemmPlan
from winolab.gpu.planner.request import Request

DIRECTIONS = ("forward", "backward_data", "backward_filter")
PRECISIONS = ("fp32", "fp32_split", "fp16", "bf16")
# Beside strides and dilation: channels that no vector divides; groups of few channels, of more on
# one side, of counts that are no powers of two, in one block and in several.
PROBLEMS = STRIDED | {
    "stem": layer((2, 19, 18, 3), 20, (7, 7), stride=2, padding=3),
    "stem of unit stride": layer((1, 12, 11, 3), 64, (3, 3), padding=1),
    "one channel": layer((2, 40, 1), 5, (9,), padding=4),
    "five channels": layer((2, 9, 10, 5), 24, (3, 2), stride=(2, 1), padding=1),
    "groups of 4": layer((2, 9, 10, 32), 32, (3, 3), padding=1, groups=8),
    "groups of 8 and 4": layer((1, 9, 10, 64), 32, (3, 3), padding=1, stride=2, groups=8),
    "groups of 2 and 8": layer((2, 9, 7, 32), 128, (3, 2), padding=1, groups=16),
    "groups of 32": layer((1, 6, 7, 128), 128, (3, 3), padding=1, groups=4),
    "groups of 5 and 7": layer((1, 7, 8, 15), 21, (3, 2), padding=1, groups=3),
    "groups of 12": layer((1, 7, 8, 36), 36, (1, 3), dilation=2, groups=3),
    "groups in depth": layer(
        (1, 4, 5, 6, 16), 16, (2, 3, 3), padding=1, groups=4, stride=(1, 2, 1)
    ),
    "1x1 of groups": layer((2, 5, 7, 64), 32, (1, 1), groups=16),
}


def offered(
    problem: Problem, direction: str, precision: str, device: Device = H100, **how: object
) -> list[ImplicitGemmPlan]:
    """Every plan of the family."""
    request = Request(problem, direction, device, None, precision, **how)  # pyright: ignore
    return list(implicit_gemm.plans(request))
