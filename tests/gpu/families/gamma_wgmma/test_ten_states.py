"""Γ with ten states: taken where FP32's sums lose as much, in blocks of 48 output channels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.gpu.support.picked import of_gamma
from winolab.algorithm import Problem, gamma
from winolab.bench.layers import parse_layer
from winolab.device import H100
from winolab.gpu.families.gamma_wgmma.plan import GammaWgmmaPlan
from winolab.gpu.planner.fallback import CorrelationWithFallback
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.ranking import LOSES_LESS
from winolab.gpu.planner.request import Request
from winolab.ref.error.metrics import error_ratio


def _request(layer: str, precision: str = "fp32", **more) -> Request:
    return Request(parse_layer(layer).problem, "forward", H100, precision=precision, **more)


@pytest.mark.parametrize("layer", ["32x16x16x512:512x7x7", "64x14x14x448:448x6x6"])
@pytest.mark.parametrize("precision", ["fp32", "fp32_split"])
def test_they_are_taken_where_sums_are_long(layer: str, precision: str) -> None:
    found = of_gamma(_request(layer, precision))
    assert isinstance(found, CorrelationWithFallback)
    (tile,) = found.tiles
    assert tile.alpha == 10
    c, taps = found.problem.in_channels, found.problem.w_shape[1]
    assert error_ratio(tile, found.points, found.simulated, c * taps) <= LOSES_LESS


@pytest.mark.parametrize("layer", ["32x53x53x96:96x7x7", "64x38x38x160:160x6x6"])
def test_they_are_not_where_sums_are_short(layer: str) -> None:
    """Though they would be the fastest of Γ."""
    assert of_gamma(_request(layer)).tiles[0].alpha <= 8
    every: tuple[Any, ...] = candidates(_request(layer)).plans
    found = [p for p in every if p.algorithm.kind == "gamma"]
    (tile,) = min(found, key=lambda p: p.predicted).algorithm.tiles
    assert tile.alpha == 10
    named: Any = plan(replace(_request(layer), algorithm=gamma(10, tile.n, tile.r)))
    assert named.algorithm.tiles == (tile,)


def test_blocks_have_48_output_channels() -> None:
    problem = Problem.of((1, 8, 8, 32), (112, 7, 7, 32), padding=3)
    found = plan(Request(problem, "forward", H100, gamma(10, 4, 7), "fp32_split"))
    assert isinstance(found, CorrelationWithFallback)
    assert isinstance(found.primary, GammaWgmmaPlan)
    assert (found.primary.blocks_m, found.primary.config.narrow, found.primary.outputs) == (
        3,
        16,
        112,
    )
    assert "48 channels" in str(found)


@pytest.mark.parametrize(
    ("filter_", "algorithm", "precision", "message"),
    [
        (
            (64, 1, 7, 32),
            gamma(10, 4, 7),
            "fp32_split",
            "gamma:10:4:7 does not fit a filter 1 high",
        ),
        ((63, 7, 7, 32), gamma(10, 4, 7), "fp32_split", "63 output channels"),
        ((64, 4, 4, 32), gamma(10, 7, 4), "fp32_split", "10 with 5 to 7 taps"),
        ((64, 7, 7, 32), gamma(10, 4, 7), "fp16", "fp16 has alpha 4 with 2 to 3 taps"),
        ((64, 7, 7, 32), gamma(10, 4, 7), "fp32_ffma", "gamma:10:4:7"),
    ],
)
def test_what_they_do_not_serve_is_refused(filter_, algorithm, precision, message) -> None:
    problem = Problem.of((1, 9, 9, 32), filter_, padding=3)
    with pytest.raises(ValueError, match=message):
        plan(Request(problem, "forward", H100, algorithm, precision))
