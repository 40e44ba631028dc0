"""The reference repeats every bit of the FP32 kernels, forward and backward data."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.gamma_ffma.predicted import predicted
from tests.gpu.families.gamma_ffma.tiles import KERNELS
from tests.gpu.support.turns import turns
from winolab import algorithm as nouns
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.families.gamma_ffma import plan as gamma_ffma
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.request import Request

every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=str)
every_direction = pytest.mark.parametrize("direction", CORRELATIONS)


def case(kernel: tuple[int, int, int], direction: str):
    """Algorithm, problem, its two arrays; 20 channels are no multiple of a chunk, and 6 taps are
    pieces of 3, 2 and 1."""
    alpha, n, r = kernel
    taps = r if r > 3 else 6
    problem = Problem.of((2, 5, 2 * n + 3, 20), (24, 3, taps, 20), padding=(1, 2))
    rng = np.random.default_rng(7)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in (shape, problem.w_shape))
    algorithm = nouns.gamma(alpha, n, r) if alpha > 1 else nouns.direct()
    return algorithm, problem, a, b


@pytest.mark.parametrize(("kernel", "direction"), turns(KERNELS, CORRELATIONS), ids=str)
def test_kernels_on_the_cpu(kernel, direction):
    algorithm, problem, a, b = case(kernel, direction)
    plans = gamma_ffma.plans(Request(problem, direction, H100, algorithm, "fp32"))
    # forward alone, and with shared rows of eight outputs; back in a cluster with shared rows
    found = list(islice(plans, 6 * CORRELATIONS.index(direction), 13, 12))
    assert found
    for plan in found:
        assert isinstance(plan, gamma_ffma.GammaFfmaPlan)
        assert np.array_equal(hosted.execute(plan, a, b), predicted(plan, algorithm, a, b))


@pytest.mark.gpu
@every_direction
@every_kernel
def test_kernels_on_the_gpu(kernel, direction):
    from tests.gpu.support.convolved import convolved
    from winolab.gpu import driver

    cp = driver.cupy()
    algorithm, problem, a, b = case(kernel, direction)
    plans = gamma_ffma.plans(Request(problem, direction, driver.device(0), algorithm, "fp32"))
    for plan in islice(plans, 0, 13, 6):
        assert isinstance(plan, gamma_ffma.GammaFfmaPlan)
        y = convolved(
            direction,
            *map(cp.asarray, (a, b)),
            problem=problem,
            algorithm=algorithm,
            config=plan.config,
        )
        assert np.array_equal(cp.asnumpy(y), predicted(plan, algorithm, a, b))
