"""Nested Winograd on Tensor Cores: plans, and kernels' results against FP64 and the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.gpu import hosted
from winolab.device import H100
from winolab.gpu.guard import FLAGS, scaled
from winolab.gpu.nested import plans
from winolab.gpu.nested_launch import KC, SCALING, NestedPlan
from winolab.gpu.oracle import relative_rms
from winolab.gpu.plan import Request, loss
from winolab.nouns import Problem, parse_algorithm
from winolab.ref import convolution, winograd
from winolab.ref.arithmetic import arithmetic
from winolab.ref.order import Order
from winolab.ref.split import Scale
from winolab.ref.winograd import programs_of

OFF = 1.5  # times the predicted error: of few outputs, which share inputs


def _bound(plan: NestedPlan) -> float:
    """Of the relative RMS error: the reference's prediction, beside that of sums in FP32."""
    products = plan.correlation.channels * math.prod(plan.correlation.filter)
    return OFF * loss(plan) * 0.30 * 2**-24 * math.sqrt(products)


def _plan(problem: Problem, direction: str, text: str, **options) -> NestedPlan:
    request = Request(problem, direction, H100, parse_algorithm(text), "fp32_split", **options)
    return min(plans(request), key=lambda p: p.predicted)


def _operands(problem: Problem, direction: str, scales=(1.0, 1.0)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    a = rng.standard_normal(shape) * scales[0]
    b = rng.standard_normal(problem.w_shape) * scales[1]
    return a.astype("float32"), b.astype("float32")


def _exact(direction: str, a: np.ndarray, b: np.ndarray, problem: Problem) -> np.ndarray:
    compute = convolution.forward if direction == "forward" else convolution.backward_data
    return compute(a.astype("float64"), b.astype("float64"), problem)


FORTH, BACK = "forward", "backward_data"
PARAMETERS = ("direction", "x_shape", "w_shape", "options", "text", "scales")
CASES = [
    # batch odd, last tile, row and channels of a block masked, two blocks of tiles
    (FORTH, (3, 9, 13, 20), (68, 3, 3, 20), {"padding": 1}, "winograd:4x4:3x3", (1e-20, 1e15)),
    (BACK, (1, 9, 13, 20), (36, 3, 3, 20), {"padding": 1}, "winograd:2x2:3x3", (1e15, 1e-20)),
    # tiles that differ along the dimensions, groups
    (FORTH, (2, 6, 9, 16), (8, 3, 5, 8), {"groups": 2}, "winograd:4x2:3x5", (1e30, 1e-38)),
    # pieces, which share tiles of the input, filled up with taps of zeros
    (FORTH, (2, 9, 10, 36), (6, 7, 7, 36), {"padding": 3}, "winograd:4x4:4x4", (1, 1)),
    (BACK, (1, 7, 11, 6), (34, 5, 9, 6), {"padding": (1, 4)}, "winograd:2x3:2x3", (1, 1)),
    # channels that no vector divides, padding that is negative for backward data
    (FORTH, (1, 8, 9, 7), (5, 3, 3, 7), {"padding": 1}, "winograd:4x4:3x3", (1, 1)),
    (BACK, (1, 12, 9, 7), (5, 2, 2, 7), {"padding": 3}, "winograd:5x4:2x2", (1, 1)),
    (FORTH, (1, 8, 9, 8), (8, 3, 3, 8), {"padding": 1}, "winograd:4x4:3x3", (1, 0)),
]  # fmt: skip


@pytest.mark.parametrize(PARAMETERS, CASES)
def test_on_the_cpu(direction, x_shape, w_shape, options, text, scales) -> None:
    problem = Problem.of(x_shape, w_shape, **options)
    plan = _plan(problem, direction, text)
    a, b = _operands(problem, direction, scales)
    left = np.zeros(FLAGS // 4, "int32").view("uint8")
    got, exact = hosted.execute(plan, a, b, left=left), _exact(direction, a, b, problem)
    if scales[1]:
        assert relative_rms(got, exact) <= _bound(plan)
        assert scales[1] < 1e-30 or not left.view("int32")[0]  # subnormal: in doubt
    else:
        assert not got.any()


@pytest.mark.parametrize(
    ("direction", "x_shape", "w_shape", "options", "text", "scales"), CASES[:5]
)
def test_every_bit_is_the_references(direction, x_shape, w_shape, options, text, scales) -> None:
    problem = Problem.of(x_shape, w_shape, **options)
    plan = scaled(_plan(problem, direction, text), Scale.of_caller("10:11"))
    a, b = _operands(problem, direction)
    compute = getattr(winograd, direction)
    order = Order(KC, filled=True)
    chosen = parse_algorithm(f"{text};scaling={SCALING}")
    run = arithmetic(plan.simulated)
    expected = compute(a, b, problem, chosen, run, programs_of(chosen), order)
    assert (hosted.execute(plan, a, b) == expected).all()


def test_parts_of_the_batch_keep_to_a_limit_and_every_bit() -> None:
    problem = Problem.of((5, 9, 9, 20), (12, 3, 3, 20), padding=1)
    whole = _plan(problem, "forward", "winograd:4x4:3x3")
    limit = whole.workspace - 1
    plan = _plan(problem, "forward", "winograd:4x4:3x3", workspace_limit=limit)
    assert len(plan.parts) > 1
    assert plan.workspace <= limit
    a, b = _operands(problem, "forward")
    assert (hosted.execute(plan, a, b) == hosted.execute(whole, a, b)).all()
