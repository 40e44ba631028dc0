"""Direct filter gradients whose copies walk positions: results against FP64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu.hosted import Guarded, filter_view, loaded, pixels_view
from tests.gpu.support.gradients import asked
from tests.gpu.support.halves import APART, CASES, infinity_stays, on_cpu, on_gpu, problems, too_far
from tests.gpu.support.host_compiler import HostError
from winolab.algorithm import Problem
from winolab.gpu import driver
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.families.wgrad_im2col.config import CONFIGS, SHAPES, Config
from winolab.gpu.families.wgrad_im2col.launch import PARAMS
from winolab.gpu.families.wgrad_im2col.plan import WgradIm2colPlan, plans
from winolab.gpu.runtime import loader

Execute = Callable[[WgradIm2colPlan, np.ndarray, np.ndarray], np.ndarray]
EXECUTE = [on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)]
SMALL = Problem.of((2, 7, 9, 72), (72, 3, 3, 72), padding=1)


def planned(problem: Problem, precision: str, config: Config, kind: str) -> WgradIm2colPlan:
    return asked(plans, precision, problem, config=config, out_dtype=kind)


@pytest.mark.parametrize("execute", EXECUTE)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_gradients_are_those_of_fp64(config: Config, execute: Execute) -> None:
    """Problems take turns with configs, so that on a GPU each shape has each; strides and dilation
    too."""
    every = [*CASES, *APART]
    first = CONFIGS.index(config)
    turns = 4 if execute is on_gpu else 1
    for i in range(turns):
        ((problem, precision, kind, x, dy),) = problems([every[(turns * first + i) % len(every)]])
        p = planned(problem, precision, config, kind)
        assert too_far(p, x, dy, execute(p, x, dy)) <= 1, problem


@pytest.mark.parametrize("execute", EXECUTE)
@pytest.mark.parametrize("split_k", [1, 3, 8])
def test_stages_are_used_again_and_parts_differ_in_length(split_k: int, execute: Execute) -> None:
    """There are 25 steps of 1,600 positions; a row of 19 outputs is no divisor of a step's 64."""
    case = ((4, 20, 20, 24), (72, 2, 2, 24), 0, "fp16")
    ((problem, precision, kind, x, dy),) = problems([case])
    p = planned(problem, precision, Config(64, 64, 3, split_k), kind)
    assert p.steps > 3 * p.config.stages > 3 * split_k / 8
    assert too_far(p, x, dy, execute(p, x, dy)) <= 1


def test_rows_that_a_block_adds_up_may_be_fewer_in_the_last_one() -> None:
    """128 rows in three parts of 43, 43 and 42, of which 72 are there."""
    ((problem, precision, kind, x, dy),) = problems(CASES[:1])
    p = planned(problem, precision, Config(128, 64, 4, 3), kind)
    assert too_far(p, x, dy, on_cpu(p, x, dy)) <= 1


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_a_filter_may_lie_with_taps_as_neighbours(kind: str) -> None:
    """As PyTorch has it: sums are stored one by one."""
    ((problem, precision, _, x, dy),) = problems(CASES[:1])
    p = planned(problem, precision, CONFIGS[0], kind)
    plain = on_cpu(p, x, dy)
    out = Guarded((72, 72, 3, 3), kind)
    view = filter_view(np.moveaxis(out.array, 1, -1))
    p.launch(loaded(p), pixels_view(x), pixels_view(dy), view, 0, 0)
    out.check("dw")
    np.testing.assert_array_equal(np.moveaxis(out.array, 1, -1), plain)


def test_a_result_is_the_same_in_any_order_of_threads() -> None:
    ((problem, precision, kind, x, dy),) = problems(CASES[:1])
    p = planned(problem, precision, Config(128, 64, 4, 4), kind)
    first, other = (np.asarray(on_cpu_in_order(p, x, dy, seed)) for seed in (0, 5))
    np.testing.assert_array_equal(first, other)


def on_cpu_in_order(p: WgradIm2colPlan, x: np.ndarray, dy: np.ndarray, seed: int) -> np.ndarray:
    out = Guarded(p.problem.w_shape, p.out_dtype)
    p.launch(loaded(p, seed), pixels_view(x), pixels_view(dy), filter_view(out.array), 0, 0)
    return out.array


def test_infinity_where_strides_pass_over_it_is_in_no_tap_and_else_in_those_that_meet_it() -> None:
    infinity_stays(lambda problem: planned(problem, "fp16", CONFIGS[0], "float32"))


def test_nan_of_a_group_reaches_no_other() -> None:
    """Copies of 64 channels bring the next groups' too; dw's rows and columns stay apart."""
    problem = Problem.of((1, 5, 6, 32), (32, 2, 2, 8), groups=4)
    rng = np.random.default_rng(3)
    x, dy = (rng.uniform(-1, 1, s).astype("f2") for s in (problem.x_shape, problem.y_shape))
    x[..., 9], dy[..., 20] = np.nan, np.nan
    dw = on_cpu(planned(problem, "fp16", CONFIGS[-1], "float32"), x, dy)
    wrong = np.zeros(dw.shape, bool)
    wrong[8:16, ..., 1] = True  # the second group's second input channel
    wrong[20] = True
    np.testing.assert_array_equal(np.isnan(dw), wrong)


@pytest.mark.gpu
def test_views_have_the_bits_of_copies() -> None:
    """Maps of every second image, row or pixel, of some channels, of one image or row repeated."""
    cupy = driver.cupy()
    rng = np.random.default_rng(5)
    large = cupy.asarray(rng.standard_normal((6, 24, 42, 56)).astype("float16"))
    views = {
        "images": large[::2, :, :, 8:40],
        "rows": large[:, 1::2, :, 16:48],
        "pixels": large[:, :, 2::3, :32],
        "one image": cupy.broadcast_to(large[3, :, :, 8:40], (5, 24, 42, 32)),
        "one row": cupy.broadcast_to(large[:, :1, :, 8:40], (6, 9, 42, 32)),
    }
    for name, x in views.items():
        problem = Problem.of(x.shape, (40, 3, 3, 32), padding=1, stride=2)
        dy = cupy.asarray(rng.standard_normal(problem.y_shape).astype("float16"))
        p = planned(problem, "fp16", Config(64, 64, 3, 2), "float32")
        kernels = loader.load(p.source(), str(p), p.shared(), 0)
        got, copied = (cupy.full(problem.w_shape, cupy.nan, "float32") for _ in range(2))
        for v, dw in ((x, got), (cupy.ascontiguousarray(x), copied)):
            p.launch(kernels, pixels_view(v), pixels_view(dy), filter_view(dw), 0, 0)
        assert bool((got == copied).all()), name


def test_parameters_and_shared_memory_are_as_large_as_planned(compiled: Any) -> None:
    for v in (next(v for v in CONFIGS if (v.bo, v.bi) == shape[:2]) for shape in SHAPES):
        p = planned(SMALL, "fp16", v, "float32")
        check = f"\nstatic_assert(sizeof(Im2colParams) == {-(-PARAMS.size // 64) * 64});"
        check += f"\nstatic_assert(sizeof(Im2colShared) == {v.shared_memory});"
        assert compiled(p.source() + check)


def test_the_engine_says_what_a_map_does_not_reach() -> None:
    """A tap beyond what an instruction can say; plans refuse it before."""
    problem = Problem.of((1, 4, 300, 8), (8, 1, 2, 8), dilation=(1, 256), padding=(0, 128))
    near = planned(SMALL, "fp16", CONFIGS[0], "float32")
    far = replace(near, problem=problem, gradient=Gradient.of(problem, unit=False))
    assert far.unreached() == "taps that lie at most 255 apart"
    x, dy = (np.ones(s, "f2") for s in (problem.x_shape, problem.y_shape))
    with pytest.raises(HostError, match="a tap at 256"):
        on_cpu(far, x, dy)
