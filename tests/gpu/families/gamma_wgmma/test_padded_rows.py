"""Γ on Tensor Cores where rows have a tile more than outputs ask for: then boxes bring several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.gamma_wgmma.policies import BOUND, Pairs, by_turns, paired
from tests.gpu.support.picked import of_gamma
from winolab.algorithm import Problem, parse_algorithm
from winolab.bench.layers import parse_layer
from winolab.bench.oracle import relative_rms
from winolab.device import H100
from winolab.gpu.families.gamma.tiles import TEN
from winolab.gpu.families.gamma_wgmma.plan import GammaWgmmaPlan, plans
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.fallback import CorrelationWithFallback
from winolab.gpu.planner.request import DTYPES, Request
from winolab.ref.algorithms import convolution

# Tiles of a row, and of a box of it, or of one with a tile more; blocks of 8 columns.
BOXES = {2: (2, 2), 3: (1, 4), 5: (1, 2), 6: (2, 2), 7: (1, 8), 8: (8, 8), 11: (1, 4), 15: (1, 8)}


def _found(problem: Problem, text: str, precision: str, **more) -> list[GammaWgmmaPlan]:
    algorithm, direction = parse_algorithm(text), more.pop("direction", "forward")
    request = Request(problem, direction, H100, algorithm, precision, out_dtype="float32", **more)
    return list(plans(request))


def _exact_tiles(p: GammaWgmmaPlan) -> int:
    return -(-p.correlation.output[2] // p.tile.n)


@pytest.mark.parametrize(("tiles", "runs"), BOXES.items())
def test_odd_rows_are_offered_with_a_tile_more(tiles: int, runs: tuple[int, int]) -> None:
    problem = Problem.of((1, 8, 6 * tiles, 32), (64, 3, 3, 32), padding=1)
    found = [
        p for p in _found(problem, "gamma:8:6:3", "fp32_split") if p.config.columns(p.tile) == 8
    ]
    seen = {p.tiles_width: p.config.run for p in found}
    assert seen == dict(zip((tiles, tiles + tiles % 2), runs, strict=True))
    for p in found:
        assert p.columns == p.tiles_width


SPLIT = "fp32_split"
BOUNDS = {SPLIT: BOUND, "fp16": 5 * 2**-11, "bf16": 5 * 2**-8}  # as test_plan.py has them


CASES: list[Any] = [
    # direction, x, w, options, algorithm, precision
    # three, five and seven tiles of a row, the last with one output, blocks that have all rows
    ("forward", (4, 8, 13, 20), (68, 3, 3, 20), {"padding": 1}, "gamma:8:6:3", SPLIT),
    ("backward_data", (2, 8, 19, 64), (20, 3, 3, 64), {"padding": 1}, "gamma:6:4:3", SPLIT),
    ("forward", (1, 8, 26, 8), (48, 7, 7, 8), {"padding": 3}, "gamma:10:4:7", SPLIT),
    ("forward", (3, 5, 20, 14), (10, 3, 2, 7), {"groups": 2}, "gamma:8:7:2", SPLIT),
    ("forward", (2, 8, 14, 24), (72, 3, 3, 24), {"padding": 1}, "gamma:8:6:3", "fp16"),
    ("backward_data", (2, 5, 9, 8), (8, 3, 3, 8), {"padding": 1}, "gamma:6:4:3", "bf16"),
]


def _pairs(number: int) -> Pairs:
    """A case's plans with a tile more beside the same without; by filter rows of a stage."""
    direction, x_shape, w_shape, options, text, precision = CASES[number]
    problem, aligned = Problem.of(x_shape, w_shape, **options), w_shape[-1] % 4 == 0
    found = _found(problem, text, precision, direction=direction, aligned=aligned)
    pairs = paired(
        (p for p in found if p.tiles_width > _exact_tiles(p)),
        (p for p in found if p.tiles_width == _exact_tiles(p) and p.config.run),
        # what a tile more decides, and the room that it leaves
        alike=lambda p: replace(p.config, run=0, images=0, exchanges=0),
        rows=lambda p: p.config.share,
    )
    return by_turns(pairs, number)


def test_every_way_has_its_turn() -> None:
    every = set().union(*(_pairs(number) for number in range(len(CASES))))
    assert every >= {(1, 1), (1, 2), (1, 3), (2, None), (4, None)}


@pytest.mark.parametrize("number", range(len(CASES)))
def test_they_have_the_same_bits(number: int) -> None:
    """As the same blocks without a tile more; also of clusters that share sums, whose outputs
    other warps store, and of a copy of the input whose channels are filled up."""
    direction, x_shape, w_shape, options, _, precision = CASES[number]
    problem = Problem.of(x_shape, w_shape, **options)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    dtype, rng = np.dtype(DTYPES[precision]), np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(dtype) for s in (shape, problem.w_shape))
    exact = getattr(convolution, direction)(a.astype(float), b.astype(float), problem)
    for p, same in _pairs(number).values():
        result = hosted.execute(p, a, b)
        assert np.array_equal(result, hosted.execute(same, a, b)), str(p.config)
        most = 1.2 * predicted_rms(p) if p.tile.alpha == TEN else BOUNDS[precision]
        assert relative_rms(result, exact) <= most


@pytest.mark.parametrize("layer", ["32x51x51x160:160x7x7", "32x43x43x192:192x7x7"])
def test_ten_states_are_taken_with_a_tile_more(layer: str) -> None:
    """Boxes of single tiles leave no room for four filter rows: Γ6 took 5 to 7 % longer."""
    found = of_gamma(Request(parse_layer(layer).problem, "forward", H100, precision="fp32"))
    assert isinstance(found, CorrelationWithFallback)
    assert isinstance(found.primary, GammaWgmmaPlan)
    assert (found.kernel, found.primary.config.share) == ("Γ10(4,7)", 4)
    assert found.primary.tiles_width == _exact_tiles(found.primary) + 1
