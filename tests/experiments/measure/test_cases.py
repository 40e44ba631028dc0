"""The list of odd channels: planned in every direction and precision, and run on the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.measure.cases import LISTS, cases
from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import dtype_of
from tests.gpu.guarded import MEAN, MOST, UNIT, limits
from winolab.algorithm import Problem
from winolab.bench.contenders import GROUPS, unnamed
from winolab.device import datasheet
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import DIRECTIONS, DTYPES, Plan
from winolab.problem import shapes
from winolab.ref.algorithms import convolution

H200 = datasheet("h200")
ODD = [case.key for case in cases("odd")]
TURNS = [
    (i, direction, [*GROUPS][(i + j) % 3])
    for i in range(len(LISTS["odd"]))
    for j, direction in enumerate(DIRECTIONS)
]


def test_odd_channels_are_planned_in_every_direction_and_precision() -> None:
    layers = {str(layer): layer for layer in LISTS["odd"]}
    assert {*ODD} == {(name, d, group) for name in layers for d in DIRECTIONS for group in GROUPS}
    for name, direction, group in ODD:
        assert layers[name].channels % 8
        assert layers[name].out_channels % 8
        found = plan(unnamed(direction, layers[name].problem, group, H200))
        assert found.predicted > 0


def of_three_rows(number: int, direction: str, group: str) -> Plan:
    """What is picked of a layer, for three rows of an image: the same kernel, block and text."""
    p = LISTS["odd"][number].problem
    picked = plan(unnamed(direction, p, group, H200))
    few = Problem.of((1, 3, p.input[1], p.in_channels), p.w_shape, padding=p.padding)
    asked = unnamed(direction, few, group, H200)
    config = getattr(picked.primary, "config", None)
    asked = replace(asked, precision=picked.precision, config=config)
    text = picked.primary.translation_units()[0].source()
    (same,) = (
        found
        for found in candidates(asked).plans
        if found.kernel == picked.kernel and found.primary.translation_units()[0].source() == text
    )
    return same


@pytest.mark.parametrize(("number", "direction", "group"), TURNS)
def test_what_is_picked_of_odd_channels_is_within_its_bounds(
    number: int, direction: str, group: str
) -> None:
    """Each layer and direction in a precision of its own; the proven bound, and the prediction's,
    which is narrower by far."""
    p, rng = of_three_rows(number, direction, group), np.random.default_rng(number)
    problem = p.primary.problem
    dtype = dtype_of(DTYPES[p.precision])
    a, b = (rng.uniform(-1, 1, s).astype(dtype) for s in shapes(direction, problem)[:2])
    y = hosted.execute(p, a, b, dtype=p.out_dtype).astype(float)
    exact = getattr(convolution, direction)(a.astype(float), b.astype(float), problem)
    proven, deviation, largest = limits(p.primary)
    error, rounding = np.abs(y - exact), UNIT[p.out_dtype] * (np.abs(exact) + proven)
    assert (error <= proven + rounding).all()
    narrow = UNIT[p.out_dtype] * np.abs(exact)
    assert (error <= (1 + UNIT[p.out_dtype]) * MOST * largest + narrow).all()
    rms, due = (float((v**2).mean() ** 0.5) for v in (error, narrow))
    assert rms <= MEAN * deviation + due
