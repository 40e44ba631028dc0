"""The same of FP32 numbers in TF32 parts: the kernel's source on the CPU, and on a GPU, against
FP64 within the proven bound."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.gpu.families.depthwise.cases import check_adjoint, on_gpu, operands, too_far
from tests.gpu.families.im2col.cases import PROBLEMS as LAYERS
from tests.gpu.families.im2col.cases import layer
from tests.gpu.hosted import Guarded, filter_view, loaded, pixels_view
from tests.gpu.support.gradients import asked, sums_added_again
from tests.gpu.support.halves import on_cpu
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.families.clusters import as_many_stages_as_fit
from winolab.gpu.families.wgrad_im2col.config import (
    CONFIGS,
    TF32_CONFIGS,
    TF32_SHAPES,
    TF32_SPLITS,
    Config,
)
from winolab.gpu.families.wgrad_im2col.launch import again, parameters
from winolab.gpu.families.wgrad_im2col.plan import WgradIm2colPlan, plans
from winolab.gpu.params import Params
from winolab.gpu.planner.accuracy import incurred
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution

BACKWARD, SPLIT = "backward_filter", "fp32_split"
ENGINES = [on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)]
# Forward layers' problems, and channels that 8 does not divide.
PROBLEMS = LAYERS | {
    "fours": layer((2, 7, 9, 12), 20, (3, 3), padding=1),
    "four": layer((3, 12, 9, 4), 4, (2, 3), stride=2),
}


# Shapes that are offered to nobody, and run where they are named.
OTHERS = (128, 96, 1), (192, 64, 1), (64, 96, 2), (64, 64, 2)


def of_shapes(*shapes: tuple[int, int, int]) -> list[Config]:
    """Clusters in turn, one of each shape."""
    found = []
    for i, shape in enumerate(shapes):
        split = TF32_SPLITS[i % len(TF32_SPLITS)]
        found += as_many_stages_as_fit(partial(Config, tf32=1), [shape], [split], 2)
    return found


FEW = of_shapes(*OTHERS, *TF32_SHAPES)
UNEVEN = Config(128, 64, 4, 3, tf32=1)  # 43, 43 and 42 rows


def made(
    problem: Problem, config: Config, **how: Any
) -> tuple[WgradIm2colPlan, np.ndarray, np.ndarray]:
    """A plan and its operands."""
    x, dy = operands(problem, BACKWARD, SPLIT)
    return asked(plans, SPLIT, problem, config=config, **how), x, dy


@pytest.mark.parametrize("execute", ENGINES, ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_gradients_are_those_of_fp64(name: str, execute: Any) -> None:
    """Problems take turns with configs; of three dimensions the CPU has one alone."""
    at = [*PROBLEMS].index(name)
    if execute is on_cpu:
        configs = [FEW[at % len(FEW)] if PROBLEMS[name].ndim < 3 else FEW[-1]]
    else:
        configs = [(*TF32_CONFIGS, *FEW)[(5 * at + 3 * i) % 14] for i in range(6)]
    for config in configs:
        p, x, dy = made(PROBLEMS[name], config)
        assert too_far(p, x, dy, execute(p, x, dy)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize("config", [*TF32_CONFIGS, *FEW], ids=str)
def test_every_block_of_every_cluster_on_a_gpu(config: Config) -> None:
    check_block(config, on_gpu)


@pytest.mark.parametrize("config", FEW, ids=str)
def test_a_cluster_of_every_block(config: Config) -> None:
    check_block(config, on_cpu)


def check_block(config: Config, execute: Any) -> None:
    """Five steps in up to eight parts; the last block has few channels, the last step positions."""
    p, x, dy = made(layer((2, 6, 13, 72), 136, (2, 3), padding=1), config)
    assert too_far(p, x, dy, execute(p, x, dy)) == 0


@pytest.mark.parametrize("execute", ENGINES, ids=["cpu", "gpu"])
@pytest.mark.parametrize("config", FEW, ids=str)
def test_stages_and_places_of_parts_are_used_again(config: Config, execute: Any) -> None:
    """A row of 19 outputs is no divisor of a step's 32."""
    p, x, dy = made(layer((6, 20, 20, 8), 16, (2, 2)), config)
    assert p.steps == 68 > 2 * config.stages * config.split_k
    assert too_far(p, x, dy, execute(p, x, dy)) == 0


def test_whole_numbers_are_exact_and_adjoint() -> None:
    for name in ("3x3", "3x3 stride 2", "groups"):

        def computed(direction: str, a: Any, b: Any, problem: Problem = PROBLEMS[name]) -> Any:
            if direction != BACKWARD:
                return getattr(convolution, direction)(a.astype(float), b.astype(float), problem)
            return on_cpu(asked(plans, SPLIT, problem, config=UNEVEN), a, b)

        check_adjoint(PROBLEMS[name], ("forward", BACKWARD), "float32", computed, most=40)


@pytest.mark.parametrize("long", [0, 1])
def test_numbers_that_one_part_does_not_hold_are_exact(long: int) -> None:
    """Those of x, then of dy, have 15 bits, of which a part holds 11, times up to 3."""
    problem = layer((1, 8, 9, 40), 24, (2, 2))
    rng = np.random.default_rng(4)
    most = [3, 3]
    most[long] = (1 << 15) - 1
    x, dy = (
        rng.integers(-n, n + 1, s).astype("float32")
        for n, s in zip(most, (problem.x_shape, problem.y_shape), strict=True)
    )
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
    assert np.abs(exact).max() < 1 << 24
    assert (on_cpu(asked(plans, SPLIT, problem, config=UNEVEN), x, dy) == exact).all()


def test_sums_that_are_not_finite_are_added_up_again() -> None:
    p, x, dy = made(PROBLEMS["3x3"], UNEVEN)
    compute = partial(on_cpu, p)
    sums_added_again(compute, p.problem, x, dy, nan=(1, 5, 6, 11), large=(1, 4, 4, 70))


def test_what_lies_outside_of_x_is_in_no_sum_that_is_added_up_again() -> None:
    p, x, dy = made(PROBLEMS["three dimensions"], FEW[-1])
    at = 0, 0, 0, 2, 5
    dy[at] = 0
    exact, most = (
        convolution.backward_filter(f(x.astype(float)), f(dy.astype(float)), p.problem)
        for f in (np.asarray, np.abs)
    )
    dy[at] = np.inf
    found = on_cpu(p, x, dy)
    meets = np.zeros(found.shape, bool)
    meets[5, 1:, 1:] = True  # the first depth and the first row of taps lie outside there
    assert (np.isfinite(found) == ~meets).all()
    assert (np.abs(found - exact) <= 2.0**-24 * p.positions * most)[~meets].all()


def test_nan_of_a_group_reaches_no_other() -> None:
    """Copies of 32 channels bring the next groups' too; dw's rows and columns stay apart."""
    problem = Problem.of((1, 5, 6, 32), (32, 2, 2, 8), groups=4)
    p, x, dy = made(problem, FEW[1])
    x[..., 9], dy[..., 20] = np.nan, np.nan
    wrong = np.zeros(problem.w_shape, bool)
    wrong[8:16, ..., 1] = True  # the second group's second input channel
    wrong[20] = True
    np.testing.assert_array_equal(np.isnan(on_cpu(p, x, dy)), wrong)


def test_a_filter_may_lie_with_taps_as_neighbours() -> None:
    """As PyTorch has it: sums are stored one by one; and any order of threads gives these."""
    p, x, dy = made(PROBLEMS["3x3"], FEW[1])
    plain = on_cpu(p, x, dy)
    for seed in (0, 5):
        out = Guarded((72, 72, 3, 3), "float32")
        view = filter_view(np.moveaxis(out.array, 1, -1))
        p.launch(loaded(p, seed), pixels_view(x), pixels_view(dy), view, 0, 0)
        out.check("dw")
        np.testing.assert_array_equal(np.moveaxis(out.array, 1, -1), plain)


def test_parameters_and_shared_memory_are_as_large_as_planned(compiled: Any) -> None:
    """A shape's largest clusters stand for all that are offered."""
    every = {(v.bo, v.bi): v for v in (*FEW, *TF32_CONFIGS)}
    assert len(every) == len(TF32_SHAPES) + len(OTHERS)
    for v in every.values():
        p, x, dy = made(PROBLEMS["3x3"], v)
        views = pixels_view(x), pixels_view(dy)
        dw = filter_view(np.empty(p.problem.w_shape, "float32"))
        whole = Params.of(parameters(p, *views, dw), again(p, *views))
        check = f"\nstatic_assert(sizeof(Im2colParams) == {len(whole.data)});"
        check += f"\nstatic_assert(sizeof(Im2colShared) == {v.shared_memory});"
        assert not any(k.spills or k.stack for k in compiled(p.source() + check).values())


def test_what_is_not_there_is_refused() -> None:
    problem = PROBLEMS["3x3"]
    for precision, config in (("fp16", TF32_CONFIGS[0]), (SPLIT, CONFIGS[0])):
        with pytest.raises(ValueError, match="tf32 is FP32's"):
            asked(plans, precision, problem, config=config)
    with pytest.raises(ValueError, match="tf32 is FP32's"):
        asked(plans, SPLIT, problem, config=Config(128, 64, 4, tf32=2))
    with pytest.raises(ValueError, match="multiples of 4 channels, not 6 and 8"):
        asked(plans, SPLIT, layer((1, 5, 5, 6), 8, (1, 1)), config=TF32_CONFIGS[0])


def test_blocks_of_parts_are_offered_for_fp32_alone() -> None:
    for precision, configs in ((SPLIT, TF32_CONFIGS), ("fp16", CONFIGS)):
        found = [p.config for p in plans(Request(PROBLEMS["3x3"], BACKWARD, H100, None, precision))]
        assert found
        assert set(found) <= set(configs)


@pytest.mark.parametrize("precision", ["fp32", SPLIT])
def test_who_names_one_has_it(precision: str) -> None:
    """Three products take longer than one of 16 bits; what they lose is predicted."""
    request = Request(PROBLEMS["3x3"], BACKWARD, H100, None, precision, config=TF32_CONFIGS[0])
    found = plan(request)
    assert (found.config, found.precision) == (TF32_CONFIGS[0], SPLIT)
    assert 0 < incurred("predicted", found) < 2.0**-20
