"""What the kernels of forward and backward data are asked for, and what no kernel computes."""

from __future__ import annotations

import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.device import H100
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import DIRECTIONS, Request


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("precision", ["fp32", "fp32_ffma", "fp16"])
@pytest.mark.parametrize(
    ("x_shape", "w_shape"),
    [
        ((1 << 31, 3, 3, 1), (1, 3, 3, 1)),
        ((1, 3, 1 << 31, 1), (1, 3, 3, 1)),
        ((1, 3, 3, 1 << 31), (1, 3, 3, 1 << 31)),
        ((1, 3, 3, 1), (1 << 31, 3, 3, 1)),
    ],
)
def test_sizes_that_kernels_do_not_count_are_refused(
    x_shape, w_shape, precision, direction
) -> None:
    problem = Problem.of(x_shape, w_shape)
    message = "size is 2147483648, and the CUDA kernels count to 2147483647: split the arrays"
    with pytest.raises(ValueError, match=message):
        plan(Request(problem, direction, H100, None, precision))


def test_algorithms_of_more_states_are_refused() -> None:
    """A modulus with other factors than points: no kernel but nested Winograd's has its states."""
    text = "gamma:9:6:3@0,3/4,-3/4,4/3,-4/3,inf,x^2+1"
    problem = Problem.of((1, 24, 24, 64), (64, 3, 3, 64))
    message = r"F\(6,3\) has 9 states, the CUDA kernels n \+ r - 1 = 8; name points alone, or give"
    with pytest.raises(ValueError, match=message):
        plan(Request(problem, "forward", H100, parse_algorithm(text)))
