"""Direct filter gradients of 16-bit data by columns: plans, shares, and results against FP64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.gpu.support.gradients import SHARES, SMALL, asked, shared
from tests.gpu.support.halves import APART, infinity_stays, on_cpu, on_gpu, problems, too_far
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.families.wgrad import PARAMS, parts_of
from winolab.gpu.families.wgrad_direct.config import (
    COLUMNS,
    LONG,
    POINTWISE,
    SOURCE,
    WORK,
    ColumnsConfig,
)
from winolab.gpu.families.wgrad_direct.launch import COLUMN_PARAMS
from winolab.gpu.families.wgrad_direct.plan import WgradColumnsPlan, columns_plans
from winolab.gpu.planner.request import Request

# They have one tap, and are there by name: for strides and dilation, and rows of one tap.
ONE_TAP = POINTWISE
CONFIGS = COLUMNS + ONE_TAP
Execute = Callable[[WgradColumnsPlan, np.ndarray, np.ndarray], np.ndarray]


def request(problem: Problem) -> Request:
    return Request(problem, "backward_filter", H100, None, "fp16")


def planned(problem: Problem, precision: str, config: ColumnsConfig, kind: str) -> WgradColumnsPlan:
    return asked(columns_plans, precision, problem, config=config, out_dtype=kind)


@pytest.mark.parametrize("execute", [on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_gradients_are_those_of_fp64(config, execute: Execute) -> None:
    """One of four ways to share a problem, and the next with the next problem and config."""
    met = set()
    for turn, (problem, precision, kind, x, dy) in enumerate(problems(), CONFIGS.index(config)):
        p = shared(planned(problem, precision, config, kind), *SHARES[turn % 4])
        assert too_far(p, x, dy, execute(p, x, dy)) <= 1
        met.add(turn % 4)
    assert len(met) == len(SHARES)


@pytest.mark.parametrize("execute", [on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("config", ONE_TAP, ids=str)
def test_strided_and_dilated_gradients_are_those_of_fp64(config, execute: Execute) -> None:
    """Ways to share take turns with problems, and with configs."""
    first = ONE_TAP.index(config)
    for turn, (problem, precision, kind, x, dy) in enumerate(problems(APART), first):
        assert not problem.unit
        p = shared(planned(problem, precision, config, kind), *SHARES[turn % 4])
        assert too_far(p, x, dy, execute(p, x, dy)) <= 1, problem


@pytest.mark.parametrize("execute", [on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("shares", "warps"), [(8, 1), (9, 2), (17, 4), (40, 8)])
def test_shares_of_few_work_tiles_are_added_up_by_several_warps(shares, warps, execute) -> None:
    case = ((9, 40, 19, 72), (72, 1, 1, 72), 0, "fp16")
    ((problem, precision, kind, x, dy),) = problems([case])
    p = shared(planned(problem, precision, ONE_TAP[1], kind), 4, -shares)
    assert parts_of(shares, p.shares.work_tiles, H100.multiprocessors) == warps
    assert too_far(p, x, dy, execute(p, x, dy)) <= 1


def test_taps_a_step_apart_share_no_columns() -> None:
    """Where the step is along a row; others leave neighbours there as they are."""
    of: dict[str, Any]
    for of in ({"stride": (2, 1)}, {"dilation": (3, 1)}):
        problem = Problem.of((2, 9, 9, 64), (64, 3, 3, 64), padding=1, **of)
        assert {p.config.n for p in columns_plans(request(problem))} == {2, 3, 4}
    for of in ({"stride": 2}, {"dilation": 3}):
        problem = Problem.of((2, 9, 9, 64), (64, 3, 3, 64), padding=1, **of)
        with pytest.raises(ValueError, match="taps of a filter's row that share columns of x"):
            list(columns_plans(request(problem)))
    with pytest.raises(ValueError, match="share no columns of x; use a block of one tap"):
        planned(Problem.of((2, 9, 9, 8), (8, 3, 3, 8), stride=2), "fp16", COLUMNS[1], "float16")


@pytest.mark.parametrize(("pixels", "stride"), [(LONG, 1), (LONG - 1, 1), (2 * LONG + 2, 2)])
def test_long_sums_of_one_tap_that_no_library_cuts_have_blocks_by_columns(pixels, stride) -> None:
    """Where 128 does not divide the pixels; others, and with strides, have them by name alone."""
    long = Problem.of((1, LONG + 1, 64), (64, 1, 64))
    assert {p.config for p in columns_plans(request(long))} == {*POINTWISE}
    with pytest.raises(ValueError, match="taps of a filter's row that share columns of x"):
        list(columns_plans(request(Problem.of((1, pixels, 64), (64, 1, 64), stride=stride))))


def test_infinity_where_strides_pass_over_it_is_in_no_tap_and_else_in_those_that_meet_it() -> None:
    infinity_stays(lambda problem: planned(problem, "fp16", ONE_TAP[0], "float32"))


def test_parameters_are_as_large_as_the_kernel_declares_them(compiled) -> None:
    size = PARAMS.size + COLUMN_PARAMS.size
    p = planned(SMALL, "fp16", ColumnsConfig(3, 64, 128, 8), "float32")
    check = f"\nstatic_assert(sizeof(ColumnParams) == {size} && sizeof(Start) == 12);"
    assert compiled(p.source() + check)


def test_structs_in_shared_memory_are_as_large_as_planned(compiled) -> None:
    """The engine gives a kernel as many bytes as its plan says, and no more."""
    p = planned(SMALL, "fp16", ColumnsConfig(3, 64, 128, 8), "float32")
    text = p.source()
    structs = "ColumnScheduler", "RowSource<Element>", "ColumnsShared"
    sizes = " && ".join(f"sizeof({struct}) == {{}}" for struct in structs)
    check = f"\nstatic_assert({sizes.format(WORK, SOURCE, p.config.shared_memory)});"
    assert compiled(text + check)
