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
    """A modulus with other factors than points: kernels of nested Winograd, of Γ and Ω on FFMA
    and of Ω in two launches alone have its states; eight of F(5, 3) are no eight of F(6, 3)."""
    problem = Problem.of((1, 24, 24, 64), (64, 3, 3, 64))

    def refused(text: str, direction: str, precision: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            plan(Request(problem, direction, H100, parse_algorithm(text), precision))

    nine, eight = "gamma:9:6:3@0,3/4,-3/4,4/3,-4/3,inf,x^2+1", "gamma:8:5:3@0,1,-1,2,inf,x^2+1"
    refused(nine, "forward", "fp16", r"Γ in fp16 has alpha .*, n \+ r - 1 states")
    refused(eight, "forward", "fp16", r"Γ in fp16 has alpha .*, n \+ r - 1 states")
    gradient = "omega:9:3:6@0,3/4,-3/4,4/3,-4/3,inf,x^2+1"
    eleven = "omega:11:3:8@0,1,-1,2,-2,1/2,-1/2,inf,x^2+1"
    refused(eleven, "backward_filter", "fp32_ffma", "use fp32_split|omega:8:3:6")
    fused = f"{gradient};variant=fused"
    refused(fused, "backward_filter", "fp16", "these kernels transform in a launch of their own")
    refused(
        "dwm:3:6@0,3/4,-3/4,4/3,-4/3,inf,x^2+1", "forward", "fp32",
        r"F\(6,3\) has 9 states, the CUDA kernels n \+ r - 1 = 8; name points alone, or give",
    )  # fmt: skip
    refused("gamma:11:8:3@0,1,-1,2,-2,1/2,-1/2,inf,x^2+1", "forward", "fp32", "have alpha 1, 4, 6")
    assert plan(Request(problem, "forward", H100, parse_algorithm(nine))).precision == "fp32"
