"""WinRS's kernels in 16 bits, their source executed on the CPU: wgmma's and mma.sync's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.guarded import MEAN, limits
from tests.gpu.support.halves import DTYPES
from winolab.algorithm import Problem, parse_algorithm
from winolab.device import datasheet
from winolab.gpu.families.wgrad_winograd.plan import plans
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution

KERNELS = ("omega:4:3:2", "omega:8:3:6", "omega:8:5:4", "omega:8:7:2", "omega:16:9:8")


@pytest.mark.parametrize("gpu", ["h100", "a100"])
@pytest.mark.parametrize(
    ("precision", "text"),
    [*(("fp16", k) for k in KERNELS), ("fp16", "omega:16:7:10"), *(("bf16", k) for k in KERNELS)],
)
def test_every_kernel_of_the_paper(precision, text, gpu) -> None:
    """Results in FP32; errors below the proven bound, and as large as predicted."""
    algorithm = parse_algorithm(text)
    taps = algorithm.tiles[0].n
    problem = Problem.of((2, 4, 21, 24), (16, 3, taps, 24), padding=(1, taps // 2))
    asked = Request(
        problem, "backward_filter", datasheet(gpu), algorithm, precision, out_dtype="float32"
    )
    p = min(plans(asked), key=lambda plan: plan.predicted)
    rng = np.random.default_rng(0)
    x, dy = (
        rng.uniform(-1, 1, s).astype(DTYPES[precision]) for s in (problem.x_shape, problem.y_shape)
    )
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
    error = np.abs(hosted.execute(p, x, dy) - exact)
    proven, deviation, _ = limits(p)
    assert error.max() <= proven
    assert deviation / MEAN <= (error**2).mean() ** 0.5 <= MEAN * deviation
