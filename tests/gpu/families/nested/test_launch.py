"""Nested Winograd in 16 bits, in three dimensions, with moduli: kernels on the CPU against FP64,
every bit against the reference."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import on_gpu
from winolab.algorithm import Problem, parse_algorithm
from winolab.bench.oracle import relative_rms
from winolab.device import H100
from winolab.gpu.families.nested.config import KC
from winolab.gpu.families.nested.plan import NestedPlan, plans
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.correlation import SCALING
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.arithmetic.order import Order
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.arithmetic.split import Scale

DTYPES = {
    "float32": np.dtype("float32"),
    "float16": np.dtype("float16"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
OFF = 1.5  # times the predicted error: of few outputs, which share inputs
NINE = "0,3/4,-3/4,4/3,-4/3,inf,x^2+1"
TWELVE = "0,3/4,-3/4,4/3,-4/3,inf,x^2+x+1,x^2-x+1"
NINETEEN = "0,1/2,-1/2,3/4,-3/4,5/4,-5/4,2,-2,inf,x^2+1,x^2+x+1,x^2-x+1"
FORTH, BACK = "forward", "backward_data"
CASES = [
    # causal in time, several frames and images, channels that fill up no stage
    (FORTH, (2, 4, 9, 13, 20), (36, 3, 3, 3, 20), ((2, 0), 1, 1), "winograd:1x4x4:1x3x3", "fp32"),
    (BACK, (2, 3, 9, 6, 20), (36, 2, 3, 3, 20), ((1, 0), 1, 1), "winograd:1x2x2:1x3x3", "fp32"),
    (FORTH, (1, 3, 5, 9, 72), (40, 3, 3, 3, 72), ((2, 0), 1, 1), "winograd:1x4x4:1x3x3", "bf16"),
    # backward data of more padding than taps: frames of dy that nothing reads
    (BACK, (2, 3, 9, 6, 36), (20, 2, 3, 3, 36), ((3, 2), 1, 1), "winograd:1x2x4:1x3x3", "fp16"),
    # frames without taps along the depth, in pieces
    (FORTH, (1, 2, 8, 8, 8), (16, 1, 4, 4, 8), 0, "winograd:1x2x2:1x2x2", "fp16"),
    # padding along a depth of one tap: frames of x lie elsewhere than those of y
    (FORTH, (3, 2, 6, 6, 8), (16, 1, 3, 3, 8), ((1, 0), 1, 1), "winograd:1x4x4:1x3x3", "fp16"),
    (FORTH, (3, 2, 6, 6, 8), (16, 1, 3, 3, 8), ((0, 2), 1, 1), "winograd:1x4x4:1x3x3", "fp32"),
    (BACK, (3, 2, 6, 6, 8), (16, 1, 3, 3, 8), ((2, 1), 1, 1), "winograd:1x4x4:1x3x3", "bf16"),
    # two dimensions in 16 bits: two stages, odd channels, groups, pieces
    (FORTH, (2, 9, 13, 100), (68, 3, 3, 100), 1, "winograd:4x4:3x3", "fp16"),
    (BACK, (1, 8, 9, 7), (5, 3, 3, 7), 1, "winograd:2x4:3x3", "bf16"),
    (FORTH, (1, 9, 10, 36), (6, 7, 7, 18), 3, "winograd:4x4:4x4", "fp16"),
    # moduli, in registers, along one dimension alone, and through shared memory
    (FORTH, (1, 12, 13, 40), (24, 3, 3, 40), 1, f"winograd:6x6:3x3@{NINE}", "fp16"),
    (BACK, (1, 13, 9, 20), (36, 3, 3, 20), 1, f"winograd:6x6:3x3@{NINE}", "fp32"),
    (FORTH, (1, 13, 9, 20), (36, 3, 3, 20), 1, f"winograd:6x2:3x3@{NINE}", "fp32"),
    (BACK, (1, 13, 14, 66), (36, 5, 5, 66), 2, f"winograd:6x6:5x5@{TWELVE}", "bf16"),
    (BACK, (1, 13, 14, 7), (36, 5, 5, 7), 2, f"winograd:6x6:5x5@{TWELVE}", "fp32"),
    (FORTH, (1, 17, 9, 33), (70, 9, 9, 33), 4, f"winograd:8x8:9x9@{NINETEEN}", "fp32"),
    (FORTH, (1, 9, 9, 72), (70, 9, 9, 72), 4, f"winograd:8x8:9x9@{NINETEEN}", "fp16"),
]  # fmt: skip
IDS = [f"{direction} {text[9:16]} {precision}" for direction, _, _, _, text, precision in CASES]


def _plan(problem: Problem, direction: str, text: str, precision: str, **options) -> NestedPlan:
    precision = "fp32_split" if precision == "fp32" else precision
    request = Request(problem, direction, H100, parse_algorithm(text), precision, **options)
    return min(plans(request), key=lambda p: p.predicted)


def _bits(
    direction, x_shape, w_shape, padding, text, precision
) -> tuple[NestedPlan, np.ndarray, np.ndarray, np.ndarray]:
    """A case's plan, its operands and what the simulation says of them."""
    groups = x_shape[-1] // w_shape[-1]
    problem = Problem.of(x_shape, w_shape, padding=padding, groups=groups)
    wide = {"out_dtype": "float32"} if precision == "bf16" and direction == BACK else {}
    plan = _plan(problem, direction, text, precision, **wide)
    if precision == "fp32":
        plan = plan.scaled(Scale.of_caller("4:9"))
    rng = np.random.default_rng(0)
    shape = problem.x_shape if direction == FORTH else problem.y_shape
    dtype = DTYPES[{"fp16": "float16", "bf16": "bfloat16"}.get(precision, "float32")]
    a, b = (rng.standard_normal(s).astype(dtype) for s in (shape, problem.w_shape))
    chosen = parse_algorithm(f"{text};scaling={SCALING}")
    order = Order(KC[plan.precision], padded=True)
    run = arithmetic(plan.simulated)
    x, w = a.astype("float32"), b.astype("float32")
    expected = getattr(winograd, direction)(x, w, problem, chosen, run, programs_of(chosen), order)
    return plan, a, b, expected.astype(DTYPES[plan.out_dtype])


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_bit_on_a_gpu_is_the_references(case) -> None:
    """Split products among them."""
    plan, a, b, expected = _bits(*case)
    assert (on_gpu(plan, a, b) == expected).all()


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_bit_is_the_references(case) -> None:
    """And the error is as predicted."""
    plan, a, b, expected = _bits(*case)
    direction, problem = plan.direction, plan.problem
    got = hosted.execute(plan, a, b, dtype=plan.out_dtype)
    assert (got == expected).all()
    exact = getattr(convolution, direction)(a.astype(float), b.astype(float), problem)
    assert relative_rms(got.astype(float), exact) <= OFF * predicted_rms(plan)


def test_pieces_of_a_padded_depth_are_refused() -> None:
    """Their tiles have no frames between which zeros could lie."""
    problem = Problem.of((1, 3, 8, 8, 8), (16, 1, 4, 4, 8), padding=((1, 0), 0, 0))
    with pytest.raises(ValueError, match="no CUDA kernel has"):
        _plan(problem, FORTH, "winograd:1x2x2:1x2x2", "fp16")
    for direction in (FORTH, BACK):  # unnamed, none is offered
        asked = Request(problem, direction, H100, None, "fp32_split")
        assert all(p.pieces == (1, 1) for p in plans(asked))
