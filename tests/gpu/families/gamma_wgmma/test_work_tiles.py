"""Γ on Tensor Cores where blocks walk over several work tiles, on the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import hosted
from winolab.algorithm import Problem, parse_algorithm
from winolab.bench.oracle import relative_rms
from winolab.device import H100
from winolab.gpu.families.gamma_wgmma.config import Config
from winolab.gpu.families.gamma_wgmma.plan import plans
from winolab.gpu.planner.request import DTYPES, Request
from winolab.ref.algorithms import convolution

BOUND = {"fp32_split": 16 * 2**-24, "fp16": 5 * 2**-11}  # relative RMS, as in test_plan.py


@pytest.mark.parametrize("precision", ["fp32_split", "fp16"])
@pytest.mark.parametrize(
    ("height", "channels", "out_channels"), [(16, 20, 128), (11, 20, 72), (11, 7, 5)]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_blocks_walk_over_work_tiles(precision, height, channels, out_channels, seed) -> None:
    """What loaders describe ahead, in any order of threads."""
    problem = Problem.of((4, height, 24, channels), (out_channels, 3, 3, channels), padding=1)
    few = replace(H100, multiprocessors=2)
    request = Request(
        problem, "forward", few, parse_algorithm("gamma:8:6:3"), precision,
        aligned=channels % 4 == 0, config=Config(8, 3),
    )  # fmt: skip
    plan = min(plans(request), key=lambda p: p.predicted)
    assert plan.work_tiles > plan.grid
    dtype = np.dtype(DTYPES[precision])
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(dtype) for s in (problem.x_shape, problem.w_shape))
    got = hosted.execute(plan, a, b, dtype=plan.out_dtype, seed=seed).astype("float64")
    exact = convolution.forward(a.astype("float64"), b.astype("float64"), problem)
    error = relative_rms(got, exact)  # NaN if one is not written
    assert error <= BOUND[precision]
