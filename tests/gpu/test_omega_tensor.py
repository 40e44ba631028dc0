"""Filter gradients on Tensor Cores: plans, kernels compiled, their results against FP64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu.hosted import execute
from winolab.device import H100, datasheet
from winolab.gpu import nvrtc
from winolab.gpu.omega_tensor import plans
from winolab.gpu.omega_tensor_launch import DTYPES, VARIANTS, source
from winolab.nouns import Problem, Tile, parse_algorithm
from winolab.ref import convolution

# Twice direct's error by the predicted ratio of Ω8, and FP32's where it is split.
BOUNDS = {"fp16": 4e-3, "fp32_split": 2e-6}


def _plan(problem: Problem, text: str | None, precision: str, **options):
    algorithm = parse_algorithm(text) if text else None
    found = plans(problem, "backward_filter", H100, algorithm, precision, aligned=True, **options)
    return min(found, key=lambda plan: plan.predicted)


@pytest.mark.parametrize(
    ("precision", "text", "shapes", "options"),
    [
        ("fp16", "omega:8:3:6", ((2, 6, 8, 64), (64, 3, 3, 64)), {"padding": 1}),
        ("fp32_split", "omega:8:3:6", ((3, 6, 9, 70), (33, 3, 3, 70)), {"padding": 1}),
        ("fp16", "direct", ((3, 4, 5, 9), (7, 2, 3, 9)), {"padding": ((1, 0), (2, 1))}),
    ],
)
def test_gradient_on_the_cpu(precision, text, shapes, options):
    """Chunks of images and rows, segments, odd channels: the kernels' own source."""
    problem = Problem.of(*shapes, **options)
    plan = _plan(
        problem, text, precision, variant=VARIANTS[2 if precision == "fp32_split" else 1][5]
    )
    plan = replace(plan, images=min(2, problem.batch), rows=3, segments=2)
    rng = np.random.default_rng(1)
    dtype = DTYPES[precision]
    x = rng.standard_normal(problem.x_shape).astype(dtype)
    dy = rng.standard_normal(problem.y_shape).astype(dtype)
    dw = execute(plan, x, dy)
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
    assert ((dw - exact) ** 2).mean() ** 0.5 <= BOUNDS[precision] * (exact**2).mean() ** 0.5


@pytest.mark.parametrize("precision", ["fp32_split", "fp16", "bf16"])
def test_compiles_without_spills(precision):
    for variant in VARIANTS[2 if precision == "fp32_split" else 1]:
        text = source(Tile(3, 6), "best", precision, DTYPES[precision], variant)
        resources = nvrtc.compile_cubin(text, "sm_90a").resources
        assert len(resources) == 3
        assert all(r.spills == 0 for r in resources.values()), (variant, resources)


def test_workspace_limit_is_kept_or_refused():
    problem = Problem.of((32, 56, 56, 128), (128, 3, 3, 128), padding=1)
    limit = 40 << 20
    assert _plan(problem, None, "fp16", workspace_limit=limit).workspace <= limit
    with pytest.raises(ValueError, match="workspace"):
        _plan(problem, None, "fp16", workspace_limit=1 << 10)


def test_other_devices_are_refused():
    problem = Problem.of((1, 8, 8, 8), (8, 3, 3, 8))
    with pytest.raises(ValueError, match="compute capability"):
        next(plans(problem, "backward_filter", datasheet("rtx4090"), None, "fp16", aligned=True))
