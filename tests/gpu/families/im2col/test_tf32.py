"""The same of FP32 numbers in TF32 parts: the kernel's source on the CPU, and on a GPU, against
FP64 within the proven bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import check_adjoint, on_gpu, operands, too_far
from tests.gpu.families.im2col.cases import (
    BACK,
    CASES,
    DIRECTIONS,
    FORTH,
    PROBLEMS,
    UNIT,
    layer,
    on_cpu,
    planned,
)
from winolab.arguments.epilogue import Activation, Epilogue
from winolab.device import H100
from winolab.gpu.families.im2col.config import CONFIGS, TF32_CONFIGS, Config
from winolab.gpu.families.im2col.launch import again, parameters
from winolab.gpu.families.im2col.plan import Im2colPlan, plans
from winolab.gpu.params import Params
from winolab.gpu.planner.accuracy import incurred
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.problem import Problem
from winolab.ref.algorithms import convolution

SPLIT = "fp32_split"
ENGINES = [on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)]
ALONE = [(name, direction) for name, direction in CASES if PROBLEMS[name].groups == 1]


def made(
    problem: Problem, direction: str, config: Config
) -> tuple[Im2colPlan, np.ndarray, np.ndarray]:
    """A plan and its operands."""
    a, b = operands(problem, direction, SPLIT)
    return planned(problem, direction, SPLIT, config), a, b


@pytest.mark.parametrize("execute", ENGINES, ids=["cpu", "gpu"])
@pytest.mark.parametrize(("name", "direction"), ALONE)
def test_results_are_those_of_fp64(name: str, direction: str, execute: Any) -> None:
    """Problems take turns with configs."""
    fitting = [v for v in TF32_CONFIGS if direction == FORTH or v.bm % 64 == 0]
    at = ALONE.index((name, direction))
    for i in range(1 if execute is on_cpu else 5):
        p, a, b = made(PROBLEMS[name], direction, fitting[(5 * at + 3 * i) % len(fitting)])
        assert too_far(p, a, b, execute(p, a, b)) == 0, p


@pytest.mark.parametrize("execute", ENGINES, ids=["cpu", "gpu"])
@pytest.mark.parametrize("config", TF32_CONFIGS, ids=str)
def test_every_block_of_every_cluster(config: Config, execute: Any) -> None:
    """27 steps in parts that differ in length; the last block has few positions and channels."""
    problem = layer((2, 6, 13, 72), 136, (3, 3), padding=1)
    direction = (BACK, FORTH)[config.bm % 64 > 0 or config.split_k % 2]
    p, a, b = made(problem, direction, config)
    assert too_far(p, a, b, execute(p, a, b)) == 0


def test_stages_and_places_of_parts_are_used_again() -> None:
    p, a, b = made(layer((1, 5, 9, 200), 24, (3, 3), padding=1), FORTH, Config(64, 32, 2, tf32=1))
    assert p.steps == 63 > p.config.stages
    assert too_far(p, a, b, on_cpu(p, a, b)) == 0


def test_integers_are_exact_and_adjoint() -> None:
    """Up to 2¹¹, which the parts of a number hold."""
    for name in ("3x3", "dilation", "cut"):

        def computed(direction: str, a: Any, b: Any, problem: Problem = UNIT[name]) -> Any:
            return on_cpu(planned(problem, direction, SPLIT, Config(64, 64, 3, 3, tf32=1)), a, b)

        check_adjoint(UNIT[name], DIRECTIONS, "float32", computed, most=40)


@pytest.mark.parametrize("channels", [8, 40])
def test_each_step_of_every_tap_is_added(channels: int) -> None:
    """Beside 1 every other step's sum is lost: the bound had one step of 32 channels for four taps
    of 8."""
    p = planned(layer((1, 16, 16, channels), 32, (16, 16)), FORTH, SPLIT, Config(64, 32, 3, tf32=1))
    assert p.steps == 256 * -(-channels // 32)
    a, b = (np.zeros(s, "float32") for s in (p.problem.x_shape, p.problem.w_shape))
    a[..., ::32] = b[..., ::32] = 2.0**-12 * (1 - 2.0**-10)
    a[0, 0, 0, 0] = b[:, 0, 0, 0] = 1
    found, exact = on_cpu(p, a, b), (a.astype(float) * b).sum((1, 2, 3))
    assert (np.abs(found - exact) >= 0.99 * (p.steps - 1) * 2.0**-24).all()
    assert too_far(p, a, b, found) == 0


@pytest.mark.parametrize("exponent", [-125, -120])
def test_what_tf32_does_not_hold_of_small_numbers_is_cut_off(exponent: int) -> None:
    """Up to 2⁻¹³⁶ of each, where rounding would lose half of it."""
    p, a, b = made(UNIT["1x1"], FORTH, Config(64, 32, 3, tf32=1))
    a[...], b[...] = (2**23 + 0xFFF) * 2.0 ** (exponent - 23), 2.0**100
    assert too_far(p, a, b, on_cpu(p, a, b)) == 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sums_that_are_not_finite_are_added_up_again(direction: str) -> None:
    """An infinity, whose low part is NaN, gives what FFMA gives, in its windows alone; a number
    that rounds up to one a finite sum."""
    p, a, b = made(UNIT["3x3"], direction, Config(64, 64, 3, 2, tf32=1))
    largest = np.finfo("float32").max
    a[0, 2, 4, 3], a[1, 8, 11, 0], a[1, 0, 0, 5] = np.inf, np.nan, largest
    b = np.abs(b) / 64
    found = on_cpu(p, a, b)
    with np.errstate(invalid="ignore"):
        exact = getattr(convolution, direction)(a.astype(float), b.astype(float), p.problem)
    windows = np.zeros(found.shape[:3], bool)
    windows[0, 1:4, 3:6] = windows[1, 7:, 10:] = True
    for of in (np.isposinf, np.isnan):
        assert (of(found) == of(exact)).all()
    assert (np.isfinite(found).all(-1) == ~windows).all()
    large = np.abs(exact[1, :2, :2])
    assert (np.abs(found[1, :2, :2] - exact[1, :2, :2]) <= 2.0**-13 * large).all()
    assert large.min() > largest * 1e-9


def test_an_epilogue_follows_sums_of_either_kind() -> None:
    p, a, b = made(UNIT["3x3"], FORTH, Config(64, 64, 3, 2, tf32=1))
    a[0, 2, 4, 3] = -np.inf
    b = np.abs(b)
    plain = on_cpu(p, a, b)
    of = p.with_epilogue(Epilogue(True, True, Activation("relu")))
    assert of
    assert np.isneginf(plain).any()
    rng = np.random.default_rng(3)
    bias, residual = (
        rng.uniform(-1, 1, n).astype("float32") for n in (plain.shape[-1:], plain.shape)
    )
    found = hosted.execute(of, a, b, epilogue=(bias, residual))
    assert (found == np.maximum(plain + bias + residual, 0)).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_parameters_and_shared_memory_are_as_large_as_planned(
    direction: str, compiled: Any
) -> None:
    seen = {(v.bn, v.bm): v for v in TF32_CONFIGS if direction == FORTH or v.bm % 64 == 0}
    for v in seen.values():
        p, a, b = made(UNIT["3x3"], direction, v)
        x, w = hosted.pixels_view(a), hosted.filter_view(b)
        whole = Params.of(parameters(p, x, w, x), again(p, x, w))
        check = f"\nstatic_assert(sizeof(PositionsParams) == {len(whole.data)});"
        check += f"\nstatic_assert(sizeof(PositionsShared) == {v.shared_memory});"
        assert not any(kernel.spills for kernel in compiled(p.source() + check).values())


def test_what_is_not_there_is_refused() -> None:
    for precision, config in (("fp16", TF32_CONFIGS[0]), (SPLIT, CONFIGS[0])):
        with pytest.raises(ValueError, match="tf32 is FP32's"):
            planned(UNIT["3x3"], FORTH, precision, config)
    with pytest.raises(ValueError, match="one group of FP32, not 2"):
        planned(UNIT["groups"], FORTH, SPLIT, TF32_CONFIGS[0])


def test_blocks_of_parts_are_offered_for_fp32_alone() -> None:
    for precision, config in ((SPLIT, TF32_CONFIGS), ("fp16", CONFIGS)):
        found = [p.config for p in plans(Request(UNIT["3x3"], FORTH, H100, None, precision))]
        assert found
        assert set(found) <= set(config)


@pytest.mark.parametrize("precision", ["fp32", SPLIT])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_who_names_one_has_it(direction: str, precision: str) -> None:
    """The planner had asked what a plan without a tile loses, and refused all of them."""
    config = next(v for v in TF32_CONFIGS if v.bm % 64 == 0)
    found = plan(Request(UNIT["3x3"], direction, H100, None, precision, config=config))
    assert (found.config, found.precision) == (config, SPLIT)
    assert 0 < incurred("predicted", found) < 2.0**-20
