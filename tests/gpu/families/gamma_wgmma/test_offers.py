"""Which plans of Γ on Tensor Cores are built."""

from __future__ import annotations

from dataclasses import replace

import pytest

from winolab.algorithm import Problem
from winolab.device import DATASHEETS
from winolab.gpu.families.gamma.offers import planned, shares, tiles_of
from winolab.gpu.families.gamma_wgmma import cost, plan
from winolab.gpu.families.gamma_wgmma.config import shaped, shapes
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.ranking import NEAR, least_sure
from winolab.gpu.planner.request import Request


@pytest.mark.parametrize(
    ("x", "w", "device", "precision"),
    [
        ((32, 7, 7, 512), (512, 3, 3, 512), "h100", "fp32_split"),
        ((4, 40, 61, 61), (24, 2, 5, 61), "h200", "fp32_split"),
        ((8, 12, 57, 3), (48, 2, 7, 3), "h100", "fp16"),
    ],
)
def test_what_is_not_built_is_slower(
    x: tuple[int, ...], w: tuple[int, ...], device: str, precision: str
) -> None:
    """No config is faster than its shape's least time, and all near the fastest are offered."""
    request = Request(Problem.of(x, w, padding=1), "forward", DATASHEETS[device], None, precision)
    c = Correlation.of(request.problem, "forward")
    every = []
    for tile in tiles_of(c, request):
        for shape in shapes(tile, c, request):
            bounds = cost.least_seconds(shape, c, request)
            for split_k, least in zip(shape.splits, bounds, strict=True):
                for config in shaped(shape, split_k, c, request):
                    made = planned(plan.GammaWgmmaPlan, request, c, tile, config)
                    if shares(made):
                        made = replace(made, predicted=cost.seconds(made))
                        assert least <= made.predicted * (1 + 1e-9)
                        every.append(made)
    offered = list(plan.near(request))
    most = NEAR * least_sure(every, request)
    near, built = (
        [p.predicted for p in plans if p.predicted <= most] for plans in (every, offered)
    )
    assert built == near
    assert len(offered) < len(every) / 2
