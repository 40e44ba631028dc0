"""Predicted times of nested Winograd's calls."""

from __future__ import annotations

import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.bench.layers import parse_layer
from winolab.device import datasheet
from winolab.gpu.families.nested.plan import plans
from winolab.gpu.planner.request import Request

# Microseconds with a cold L2 cache, on an H100 and on an H200.
MEASURED = {
    ("128x12x12x512:512x3x3", "winograd:4x4:3x3"): (222, 191),
    ("32x64x64x128:128x7x7", "winograd:4x4:4x4"): (464, 399),
    ("32x72x72x128:128x8x8", "winograd:4x4:4x4"): (615, 536),
    ("32x32x32x256:256x9x9", "winograd:3x5:3x5"): (560, 511),
}


NINE = "@0,3/4,-3/4,4/3,-4/3,inf,x^2+1"
VIDEO = (1, 5, 60, 104, 384), (384, 3, 3, 3, 384), ((2, 0), 1, 1)
# The same of experiments/results/nested.jsonl, an H200's.
NESTED = {
    (VIDEO, "winograd:1x4x4:1x3x3", "fp32_split"): 386,
    (VIDEO, "winograd:1x4x4:1x3x3", "bf16"): 195,
    (VIDEO, f"winograd:1x6x6:1x3x3{NINE}", "bf16"): 228,
}


@pytest.mark.parametrize("case", NESTED, ids=lambda case: f"{case[1][:20]} {case[2]}")
def test_so_are_those_of_three_dimensions_and_of_16_bits(case) -> None:
    """Within twice the fits' rms: 0.04 of split FP32, 0.10 of 16 bits."""
    (x, w, padding), algorithm, precision = case
    problem, wanted = Problem.of(x, w, padding=padding), parse_algorithm(algorithm)
    request = Request(problem, "forward", datasheet("h200"), wanted, precision)
    off = 0.08 if precision == "fp32_split" else 0.2
    fastest = min(plans(request), key=lambda p: p.predicted)
    assert fastest.predicted * 1e6 == pytest.approx(NESTED[case], rel=off)


@pytest.mark.parametrize("case", MEASURED, ids=" ".join)
def test_predictions_are_those_measured(case) -> None:
    """Within twice the fits' rms."""
    layer, algorithm = case
    for name, measured in zip(("h100", "h200"), MEASURED[case], strict=True):
        problem, wanted = parse_layer(layer).problem, parse_algorithm(algorithm)
        request = Request(problem, "forward", datasheet(name), wanted, "fp32_split")
        fastest = min(plans(request), key=lambda p: p.predicted)
        assert fastest.predicted * 1e6 == pytest.approx(measured, rel=0.07), name
