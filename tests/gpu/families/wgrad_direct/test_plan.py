"""What both kernels of direct 16-bit filter gradients have in common: results, units, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.support.gradients import asked
from tests.gpu.support.halves import on_cpu
from winolab.algorithm import Problem
from winolab.device import H100, datasheet
from winolab.gpu.families.gamma_wgmma.config import REGISTERS
from winolab.gpu.families.wgrad_direct.config import (
    COLUMNS,
    CONSUMERS,
    NARROW,
    PRODUCERS,
    ColumnsConfig,
    NarrowConfig,
)
from winolab.gpu.families.wgrad_direct.plan import columns_plans, narrow_plans

FAMILIES = pytest.mark.parametrize("plans", [columns_plans, narrow_plans])


@pytest.mark.parametrize(
    ("plans", "config"),
    [
        (columns_plans, ColumnsConfig(2, 128, 128, 5)),
        (narrow_plans, NarrowConfig(3, 64, 64, 6, 128, 256)),
    ],
)
def test_nothing_but_the_result_holds_infinity(plans, config) -> None:
    """An infinity in x is in every tap that meets it, and in no other channel."""
    rng = np.random.default_rng(2)
    problem = Problem.of((1, 5, 6, 16), (8, 3, 3, 16), padding=1)
    x, dy = (rng.uniform(-1, 1, s).astype("f2") for s in (problem.x_shape, problem.y_shape))
    x[0, 2, 3, 5] = np.inf
    dw = on_cpu(asked(plans, "fp16", problem, config=config, out_dtype="float32"), x, dy)
    assert not np.isfinite(dw[..., 5]).any()
    assert np.isfinite(np.delete(dw, 5, axis=-1)).all()


@pytest.mark.parametrize(
    ("plans", "configs", "name"),
    [
        (columns_plans, COLUMNS, "winolab_wgrad_direct_columns"),
        (narrow_plans, NARROW, "winolab_wgrad_direct_narrow"),
    ],
)
def test_compiles_without_spills(plans, configs, name, compiled) -> None:
    problem = Problem.of((2, 9, 9, 64), (64, 4, 4, 64))
    for config in configs:
        p = asked(plans, "fp16", problem, config=config, out_dtype="float32")
        resources = compiled(p.source())
        assert all(r.spills == 0 for r in resources.values()), (config, resources)
        copying = getattr(config, "producers", PRODUCERS)
        shared = REGISTERS // (CONSUMERS + copying) // 8 * 8  # by the roles
        assert resources[name].registers == shared
        assert p.shared()[name] <= H100.shared_memory


@FAMILIES
def test_what_does_not_fit_is_refused(plans) -> None:
    with pytest.raises(ValueError, match=r"9\.0's"):
        asked(plans, "fp16", device=datasheet("a100"))
    with pytest.raises(ValueError, match="do not compute omega:8:3:6"):
        asked(plans, "fp16", text="omega:8:3:6")
    with pytest.raises(ValueError, match="multiples of 8 channels, not 12 and 64"):
        asked(plans, "fp16", Problem.of((2, 9, 9, 12), (64, 3, 3, 12)))
    with pytest.raises(ValueError, match="16-byte aligned"):
        asked(plans, "fp16", aligned=False)
    assert asked(plans, "fp16", text="direct").kernel == "Ω2(1,1)"
