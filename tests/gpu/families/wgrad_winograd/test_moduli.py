"""Ω with moduli beyond points, in two launches: a tile has more states than inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu.guarded import MEAN, MOST, UNIT, limits
from tests.gpu.hosted import execute
from winolab.algorithm import Problem, Tile, parse_algorithm
from winolab.device import H100, datasheet
from winolab.gpu.families.wgrad_winograd.config import CONFIGS, MMA_CONFIGS
from winolab.gpu.families.wgrad_winograd.plan import MODULI, plans
from winolab.gpu.families.wgrad_winograd.source import accurate, source
from winolab.gpu.families.wgrad_winograd.tiling import SCALING
from winolab.gpu.planner import planner
from winolab.gpu.planner.request import DTYPES, Request
from winolab.ref.algebra.transforms import transforms
from winolab.ref.algorithms import convolution
from winolab.ref.error.metrics import error_ratio

LAST = {"fp32_split": CONFIGS[2][5], "fp16": CONFIGS[1][5], "bf16": CONFIGS[1][5]}


def named(tile: Tile) -> str:
    return f"omega:{tile.alpha}:{tile.n}:{tile.r}@{MODULI[tile]}"


def planned(problem: Problem, tile: Tile, precision: str, **options):
    asked = Request(
        problem, "backward_filter", H100, parse_algorithm(named(tile)), precision,
        **{"out_dtype": "float32", **options},
    )  # fmt: skip
    return min(plans(asked), key=lambda plan: plan.predicted)


@pytest.mark.parametrize(
    ("tile", "precision"),
    [
        (Tile(3, 6, 9), "fp32_split"),
        (Tile(3, 6, 9), "bf16"),
        (Tile(5, 6, 12), "fp16"),
        (Tile(9, 8, 19), "fp32_split"),
    ],
)
def test_errors_are_within_the_bound_and_the_prediction(tile: Tile, precision: str) -> None:
    """Between guard zones, against the exact gradient: chunks of images and rows, two segments, odd
    channels, rows that end inside a unit, pieces of a wide filter."""
    taps = 2 * tile.n if tile.n == 3 else tile.n
    problem = Problem.of((3, 5, 13, 70), (33, 2, taps, 70), padding=(1, taps // 2))
    plan = planned(problem, tile, precision, config=LAST[precision])
    plan = replace(plan, images=2, rows=3, segments=2)
    rng = np.random.default_rng(1)
    x, dy = (rng.uniform(-1, 1, s).astype(np.float32) for s in (problem.x_shape, problem.y_shape))
    if precision == "bf16":
        bits = [(v.view(np.uint32) >> 16).astype(np.uint16) for v in (x, dy)]
        x, dy = ((v.astype(np.uint32) << 16).view(np.float32) for v in bits)
        dw = execute(plan, *bits)
    else:
        x, dy = (v.astype(DTYPES[precision]) for v in (x, dy))
        dw = execute(plan, x, dy)
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
    proven, deviation, largest = limits(plan)
    error = abs(dw - exact)
    rounding = UNIT["float32"]
    assert (error <= proven + rounding).all()
    assert (error <= MOST * largest).all()
    assert 0 < (error**2).mean() ** 0.5 <= MEAN * deviation


@pytest.mark.parametrize("tile", MODULI)
def test_states_of_16_bit_data_do_not_overflow_and_the_gain_is_small(tile: Tile) -> None:
    """As of minimal tiles: rows of G and BT sum up to at most 2. The error is below that of the
    minimal tile of as many taps and outputs."""
    made = transforms(tile.n, tile.r, MODULI[tile], SCALING)
    assert len(made.BT[0]) == tile.n + tile.r - 1 < len(made.BT) == tile.alpha
    assert max(sum(map(abs, row)) for row in (*made.G, *made.BT)) <= 2
    assert error_ratio(tile, MODULI[tile]) < 0.7 * error_ratio(Tile(tile.n, tile.r))
    assert accurate(tile, MODULI[tile])


def test_sums_in_fp64_are_for_what_loses_more() -> None:
    """With more than ten states: minimal tiles alone, and moduli of a large gain."""
    assert not accurate(Tile(9, 8), "best")
    poor = "0,1,-1,2,-2,3,-3,4,-4,5,-5,6,-6,inf,x^2+1"
    assert error_ratio(Tile(9, 8, 17), poor) > 10
    assert not accurate(Tile(9, 8, 17), poor)


def test_a_name_gets_the_kernel_and_nothing_else_does() -> None:
    problem = Problem.of((32, 28, 28, 128), (128, 3, 3, 128), padding=1)
    for precision in ("fp32_split", "fp16", "bf16"):
        text = named(Tile(3, 6, 9))
        request = Request(problem, "backward_filter", H100, parse_algorithm(text), precision)
        made = planner.plan(request)
        plan = getattr(made, "primary", made)
        assert (plan.kernel, plan.tiles) == ("Ω9(3,6)", (Tile(3, 6, 9),))
        unnamed = planner.candidates(replace(request, algorithm=None), near=True).plans
        tiles = [t for p in unnamed for t in getattr(getattr(p, "primary", p), "tiles", ())]
        assert all(t.minimal for t in tiles)


def test_too_many_inputs_or_states_are_refused() -> None:
    problem = Problem.of((2, 8, 24, 8), (8, 3, 9, 8), padding=(1, 4))
    sizes = "inf,x^2+1,x^2+1/2*x+1,x^2-1/2*x+1,x^2+x+1,x^2-x+1,x^2+3/2*x+1,x^2-3/2*x+1"
    text = f"omega:24:9:9@0,1,{sizes}"
    request = Request(problem, "backward_filter", H100, parse_algorithm(text), "fp16")
    with pytest.raises(ValueError, match=r"n \+ r - 1 up to 16, in at most 24 states"):
        next(plans(request))


@pytest.mark.parametrize("tile", MODULI)
def test_compiles_without_spills(tile: Tile, compiled) -> None:
    for precision, parts in (("fp32_split", 2), ("fp16", 1)):
        for config, arch in ((CONFIGS[parts][0], "sm_90a"), (MMA_CONFIGS[parts][0], "sm_80")):
            text = source(tile, MODULI[tile], precision, DTYPES[precision], config)
            resources = compiled(text, arch)
            # The transform of the most states, 512 threads of 128 registers each, waits for memory.
            most = 48 if (tile.alpha, arch, parts) == (19, "sm_80", 2) else 0
            assert all(r.spills <= most for r in resources.values()), (tile, config, resources)


def test_other_devices_have_them_on_mma_sync() -> None:
    problem = Problem.of((1, 8, 8, 8), (8, 3, 3, 8))
    asked = parse_algorithm(named(Tile(3, 6, 9)))
    request = Request(problem, "backward_filter", datasheet("rtx4090"), asked, "fp16")
    assert all(not p.config.wgmma and p.tile.alpha == 9 for p in plans(request))
