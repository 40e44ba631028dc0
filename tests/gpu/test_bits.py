"""The reference repeats every bit of the FP32 kernels, forward and backward data."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.predicted import predicted
from winolab.device import H100
from winolab.gpu import gamma
from winolab.gpu.plan import Request
from winolab.nouns import Problem, parse_algorithm

ALGORITHMS = {"gamma:4:2:3": 3, "gamma:8:6:3": 6, "gamma:16:8:9": 9, "direct": 3}


def case(text: str, direction: str):
    """Algorithm, problem, its two arrays; 20 channels are no multiple of a chunk."""
    problem = Problem.of((2, 5, 12, 20), (24, 3, ALGORITHMS[text], 20), padding=(1, 2))
    rng = np.random.default_rng(7)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in (shape, problem.w_shape))
    return parse_algorithm(text), problem, a, b


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
@pytest.mark.parametrize("text", ALGORITHMS)
def test_kernels_on_the_cpu(text, direction):
    algorithm, problem, a, b = case(text, direction)
    plans = gamma.plans(Request(problem, direction, H100, algorithm, "fp32"))
    # alone; in a cluster of four with shared rows; with shared rows of eight outputs
    for plan in islice(plans, 0, 13, 6):
        assert np.array_equal(hosted.execute(plan, a, b), predicted(plan, algorithm, a, b))


@pytest.mark.gpu
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
@pytest.mark.parametrize("text", ALGORITHMS)
def test_kernels_on_the_gpu(text, direction):
    from winolab.gpu import conv, launch

    cp = launch.cupy()
    algorithm, problem, a, b = case(text, direction)
    plans = gamma.plans(Request(problem, direction, launch.device(0), algorithm, "fp32"))
    for plan in islice(plans, 0, 13, 6):
        call = getattr(conv, f"conv_{direction}")
        y = call(
            *map(cp.asarray, (a, b)), problem=problem, algorithm=algorithm, variant=plan.variant
        )
        assert np.array_equal(cp.asnumpy(y), predicted(plan, algorithm, a, b))
