"""Direct filter gradients of 16-bit data by columns: plans, shares, and results against FP64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.gpu.support.gradients import SHARES, SMALL, asked, shared
from tests.gpu.support.halves import on_cpu, on_gpu, problems, too_far
from winolab.algorithm import Problem
from winolab.gpu.families.wgrad import PARAMS
from winolab.gpu.families.wgrad_direct.config import (
    COLUMNS,
    POINTWISE,
    SOURCE,
    WORK,
    ColumnsConfig,
)
from winolab.gpu.families.wgrad_direct.launch import COLUMN_PARAMS
from winolab.gpu.families.wgrad_direct.plan import WgradColumnsPlan, columns_plans

CONFIGS = COLUMNS + POINTWISE
Execute = Callable[[WgradColumnsPlan, np.ndarray, np.ndarray], np.ndarray]


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
