"""How Ω's Tensor Core kernels sum, and what that costs: FP16 sums, long sums, split Ω16."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.support.gradients import gradient_on_gpu
from winolab import conv_backward_filter
from winolab.algorithm import Problem, parse_algorithm
from winolab.bench.layers import parse_layer
from winolab.device import H100
from winolab.gpu.families.wgrad_winograd.config import FP16_SUMS
from winolab.gpu.families.wgrad_winograd.plan import LONGEST_SUM, WgradWinogradPlan, plans
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution
from winolab.ref.error.metrics import error_ratio

PROBLEM = Problem.of((4, 6, 12, 64), (64, 3, 3, 64), padding=1)


def planned(problem: Problem, text: str | None, precision: str, **options) -> WgradWinogradPlan:
    algorithm = parse_algorithm(text) if text else None
    options = {"out_dtype": "float32", **options}
    found = plans(Request(problem, "backward_filter", H100, algorithm, precision, **options))
    return min(found, key=lambda plan: plan.predicted)


def on_gpu(plan: WgradWinogradPlan, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    return gradient_on_gpu(plan, x, dy)[0]


@lru_cache
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x, dy = (rng.uniform(-1, 1, s).astype("f2") for s in (PROBLEM.x_shape, PROBLEM.y_shape))
    return x, dy, convolution.backward_filter(x.astype(float), dy.astype(float), PROBLEM)


def fp16_sums(text: str) -> WgradWinogradPlan:
    return replace(planned(PROBLEM, text, "fp16", config=FP16_SUMS), segments=1)


@pytest.mark.parametrize("execute", [hosted.execute, pytest.param(on_gpu, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("text", ["direct", "omega:8:3:6"])
def test_sums_in_fp16_lose_what_their_simulation_does(text, execute) -> None:
    x, dy, exact = data()
    plan = fp16_sums(text)
    simulated = conv_backward_filter(
        x, dy, PROBLEM.w_shape, padding=1, algorithm=text, precision=plan.simulated, out_dtype="f4"
    )
    losses = [
        (((dw - exact) ** 2).mean() / (exact**2).mean()) ** 0.5
        for dw in (execute(plan, x, dy), simulated)
    ]
    # the kernel pads rows of Ω8 with zeros to 16 positions, so that it rounds its sums more often
    assert losses[1] * 0.95 <= losses[0] <= losses[1] * 1.25


def test_there_are_as_many_segments_as_asked_for() -> None:
    """More than there are stages, too. Other sums of the same products: a rounding for each sixteen
    of them, and for each segment, which AT makes as much larger as it does all roundings."""
    x, dy, exact = data()
    sums = []
    for count in (1, 3, 40):
        plan = planned(PROBLEM, f"omega:8:3:6;segments={count}", "fp16")
        assert plan.segments == count
        sums.append(hosted.execute(plan, x, dy))
    roundings = dy[..., 0].size / 16 + 40
    bound = 2**-24 * error_ratio(plan.tile) * roundings**0.5 * (exact**2).mean() ** 0.5
    for other in sums[1:]:
        assert 0 < ((other - sums[0]) ** 2).mean() ** 0.5 <= bound


def test_sums_in_fp16_are_fp16s_and_on_mma_sync() -> None:
    for precision in ("bf16", "fp32_split"):
        with pytest.raises(ValueError, match="sums in FP16 are those of fp16 on mma"):
            planned(PROBLEM, None, precision, config=FP16_SUMS)
    found = candidates(Request(PROBLEM, "backward_filter", H100, precision="fp16")).plans
    assert found
    assert all(getattr(p.config, "sums", 32) == 32 for p in found)


@pytest.mark.parametrize(
    "layer", ["128x40x40x128:128x6x6", "256x64x64x64:64x7x7", "128x20x20x256:256x6x6"]
)
def test_long_split_sums_are_cut_before_they_lose_more_than_ffma(layer) -> None:
    plan = planned(parse_layer(layer).problem, None, "fp32_split")
    steps = plan.largest[0] / plan.config.ks / plan.segments
    assert steps * error_ratio(plan.tile, plan.points) ** 2 <= LONGEST_SUM


def test_split_products_of_alpha_16_run_where_they_are_named() -> None:
    problem = parse_layer("128x7x7x1024:1024x5x5").problem
    algorithm = parse_algorithm("omega:16:5:12")
    for precision, units in (("fp32", {"fp32"}), ("fp32_split", {"fp32_split"})):
        found = candidates(Request(problem, "backward_filter", H100, algorithm, precision)).plans
        assert {p.precision for p in found} == units
