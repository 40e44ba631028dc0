"""Predicted times of Γ on Tensor Cores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from winolab.bench.layers import parse_layer
from winolab.device import H100, Device, datasheet
from winolab.gpu.families.gamma_wgmma.cost import main_seconds
from winolab.gpu.families.gamma_wgmma.plan import GammaWgmmaPlan, plans
from winolab.gpu.planner.request import Request

# Microseconds of whole calls on an H100 with a cold L2 cache, as experiments/results had them.
MEASURED = {
    ("128x96x96x64:64x3x3", "fp32_split"): 324,
    ("128x48x48x128:128x3x3", "fp32_split"): 280,
    ("128x24x24x256:256x3x3", "fp32_split"): 260,
    ("128x12x12x512:512x3x3", "fp32_split"): 270,
    ("32x64x64x128:128x9x9", "fp32_split"): 979,
    ("32x14x14x256:256x3x3", "fp32_split"): 50,
    ("128x96x96x64:64x3x3", "fp16"): 179,
    ("128x48x48x128:128x3x3", "fp16"): 142,
    ("128x24x24x256:256x3x3", "fp16"): 127,
    ("64x64x64x128:128x5x5", "fp16"): 231,
    ("32x64x64x128:128x9x9", "fp16"): 436,
}


# On an H200, whose memory is 1.44 times as fast, of layers that it bounds there or on an H100.
ON_H200 = {
    ("128x96x96x64:64x3x3", "fp32_split"): 297,
    ("128x112x112x64:64x2x2", "fp32_split"): 322,
    ("128x80x80x64:64x4x4", "fp32_split"): 284,
    ("128x96x96x64:64x3x3", "fp16"): 158,
}


def best(
    layer: str, precision: str, aligned: bool = True, padded: int = 0, device: Device = H100
) -> GammaWgmmaPlan:
    problem = parse_layer(layer).problem
    found = plans(Request(problem, "forward", device, None, precision, aligned=aligned))
    mine = (plan for plan in found if plan.config.padded == padded)
    return min(mine, key=lambda plan: plan.predicted)


@pytest.mark.parametrize("case", MEASURED, ids=" ".join)
def test_predictions_are_those_measured(case) -> None:
    """Within twice the fit's rms, 7 %."""
    assert best(*case).predicted * 1e6 == pytest.approx(MEASURED[case], rel=0.14)


@pytest.mark.parametrize("case", ON_H200, ids=" ".join)
def test_faster_memory_is_known(case) -> None:
    """Within twice the fit's rms, 6 %."""
    predicted = best(*case, device=datasheet("h200")).predicted
    assert predicted * 1e6 == pytest.approx(ON_H200[case], rel=0.12)
    assert predicted < best(*case).predicted


@pytest.mark.parametrize("precision", ["fp32_split", "fp16"])
def test_copies_by_elements_take_longer(precision: str) -> None:
    layer = "32x48x48x128:128x3x3"
    elements, boxes = best(layer, precision, aligned=False), best(layer, precision)
    assert main_seconds(elements) > 1.5 * main_seconds(boxes)
    copied = best(layer, precision, aligned=False, padded=1)
    assert boxes.predicted < copied.predicted < elements.predicted


def test_more_boxes_and_bare_filters_never_save_time() -> None:
    turned, ahead = (
        best(layer, "fp32_split") for layer in ("128x24x24x256:256x3x3", "64x64x64x128:128x5x5")
    )
    assert (turned.config.run, turned.config.u_ring) == (4, 2)
    assert (ahead.config.run, ahead.config.u_ahead) == (8, 4)
    for plan, change in (
        (turned, {"run": 2}),
        (turned, {"run": 1}),
        (turned, {"u_ring": 0, "ring": 3}),
        (ahead, {"run": 4}),
        (ahead, {"u_ahead": 0}),
    ):
        slower = replace(plan, config=replace(plan.config, **change))
        assert main_seconds(slower) > main_seconds(plan), change
