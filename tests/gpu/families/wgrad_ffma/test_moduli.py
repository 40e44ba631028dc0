"""Ω on FFMA units with moduli beyond points: a tile has more states than a unit has columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu.families.wgrad_ffma import flat
from tests.gpu.families.wgrad_ffma.on_device import check, problems
from tests.gpu.guarded import MEAN, MOST, limits
from tests.gpu.hosted import execute
from winolab.algorithm import Problem, Tile, parse_algorithm
from winolab.device import H100, REGISTERS, datasheet
from winolab.gpu import driver
from winolab.gpu.families.wgrad_ffma import cost
from winolab.gpu.families.wgrad_ffma.config import CONFIGS, FOLDS, MODULI
from winolab.gpu.families.wgrad_ffma.plan import WgradFfmaPlan, flat_plans
from winolab.gpu.families.wgrad_ffma.source import source
from winolab.gpu.families.wgrad_winograd.plan import MODULI as POINTS
from winolab.gpu.planner import planner
from winolab.gpu.planner.request import Request
from winolab.ref.algebra.transforms import transforms
from winolab.ref.algorithms import convolution

FEW = replace(H100, multiprocessors=4)  # so that blocks walk over several work tiles
WAYS = {}, {"wrap": 1, "vector": 0, "dwvec": 1}  # of loading and storing


def named(tile: Tile, more: str = "") -> str:
    return f"omega:{tile.alpha}:{tile.n}:{tile.r}@{POINTS[tile]}{more}"


def every(problem: Problem, text: str, device=FEW, **how) -> list[WgradFfmaPlan]:
    asked = parse_algorithm(text)
    return list(flat_plans(Request(problem, "backward_filter", device, asked, "fp32", **how)))


def drawn(problem: Problem, seed: int = 0) -> list[np.ndarray]:
    """x and dy, uniform on [-1, 1)."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, s).astype("f") for s in (problem.x_shape, problem.y_shape)]


@pytest.mark.parametrize("wrap", [0, 1])
@pytest.mark.parametrize("tile", POINTS, ids=str)
def test_every_bit_is_the_simulation_s(tile: Tile, wrap: int) -> None:
    """Odd channels, segments, sums that are put aside; two tiles a filter row in rows of whole
    units, and rows of which a unit runs on into the next."""
    taps, padding = (tile.n, tile.n // 2) if wrap else (2 * tile.n, tile.n)
    problem = Problem.of((2, 3, 2 * tile.r + 1, 5), (7, 2, taps, 5), padding=(1, padding))
    (p,) = [p for p in every(problem, named(tile, ";segments=2")) if p.config.wrap == wrap]
    p = replace(p, fold=8)
    assert p.segments == 2
    assert p.tile.alpha > p.tile.inputs
    x, dy = drawn(problem)
    dw = execute(p, x, dy)
    assert np.array_equal(dw, execute(p, x, dy, seed=3))
    assert np.array_equal(dw, flat.simulated(p, x, dy))


@pytest.mark.parametrize("tile", POINTS, ids=str)
def test_errors_are_within_the_bound_and_the_prediction(tile: Tile) -> None:
    """Against the exact gradient: more channels than a block has, groups, whole vectors."""
    problem = Problem.of((2, 4, 13, 136), (80, 2, tile.n, 68), padding=(0, tile.n // 2), groups=2)
    p = every(problem, named(tile))[0]
    x, dy = drawn(problem, 1)
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
    proven, deviation, largest = limits(p)
    error = abs(execute(p, x, dy) - exact)
    assert (error <= proven).all()
    assert (error <= MOST * largest).all()
    assert 0 < (error**2).mean() ** 0.5 <= MEAN * deviation


@pytest.mark.parametrize("alpha", MODULI)
def test_every_block_shape_fits_the_kernel_and_the_gpu(alpha: int) -> None:
    """Every warp has as many states as the others, and every thread at most 64 accumulators of
    128 registers, or as many as Ω16's."""
    (tile,) = {t.alpha: t for t in POINTS if t.alpha == alpha}.values()
    for v in MODULI[alpha]:
        assert v.shared_memory(tile) <= H100.shared_memory
        assert not v.leaves_out(tile)
        lane_i, lane_o = v.lane(alpha)
        assert lane_i % (4 * v.passes) == lane_o % 4 == 0
        sums = v.states(tile) // v.state_blocks * v.bi * v.bo // v.consumers
        assert lane_i * lane_o == sums
        assert sums == 64 or v in CONFIGS[16]
        if not v.consumer_registers:
            assert REGISTERS // v.threads >= 128
        assert v.states(tile) - alpha == (alpha in (15, 19))
        assert FOLDS[alpha] <= FOLDS[8]


@pytest.mark.parametrize("tile", POINTS, ids=str)
def test_the_time_model_knows_the_programs(tile: Tile) -> None:
    made = transforms(tile.n, tile.r, POINTS[tile]).programs
    counts = made.G.counts.instructions, made.BT.counts.instructions
    assert cost.MODULI[tile.alpha] == counts
    problem = Problem.of((32, 28, 28, 128), (128, tile.n, tile.n, 128), padding=tile.n // 2)
    for p in every(problem, named(tile), H100):
        assert sum(cost.spent(p).values()) == pytest.approx(p.predicted)


@pytest.mark.parametrize("tile", POINTS, ids=str)
def test_a_name_gets_the_kernel_and_nothing_else_does(tile: Tile) -> None:
    problem = Problem.of((32, 28, 28, 128), (128, tile.n, tile.n, 128), padding=tile.n // 2)
    asked = parse_algorithm(named(tile))
    request = Request(problem, "backward_filter", H100, asked, "fp32_ffma")
    plan = planner.plan(request)
    assert isinstance(plan, WgradFfmaPlan)
    assert plan.tile == tile
    assert f"kernel     Ω{tile.alpha}({tile.n},{tile.r}) fp32" in str(plan)
    assert f"of {plan.config.threads} threads" in str(plan)
    unnamed = planner.candidates(replace(request, algorithm=None), near=True).plans
    assert all(t.minimal for p in unnamed for t in p.tiles)


def test_what_no_block_has_is_refused() -> None:
    problem = Problem.of((2, 8, 12, 8), (8, 3, 3, 8), padding=1)
    for text, device in (
        ("omega:11:3:8@0,1,-1,2,-2,1/2,-1/2,inf,x^2+1", H100),
        (named(Tile(3, 6, 9)), datasheet("rtx4090")),
    ):
        with pytest.raises(ValueError, match=r"have 9, 10, 12, 15, 19 states, .* use precision"):
            every(problem, text, device)
    with pytest.raises(ValueError, match="the filter has 3: its width must"):
        every(problem, named(Tile(5, 6, 12)))
    with pytest.raises(ValueError, match="8 warps do not have equal shares of the states of F"):
        every(problem, named(Tile(3, 6, 9)), config=CONFIGS[8][0])


@pytest.mark.parametrize("tile", POINTS, ids=str)
def test_compiles_without_spills(tile: Tile, compiled) -> None:
    for v, ways in ((v, ways) for v in MODULI[tile.alpha] for ways in WAYS):
        used = compiled(source(tile, POINTS[tile], replace(v, **ways)))["winolab_wgrad_ffma"]
        assert used.spills == 0, used
        # What setmaxnreg hands out has to be allocated by the launch, or the warps wait for ever.
        asked = v.consumers * v.consumer_registers + 128 * v.producer_registers
        assert asked <= v.threads * used.registers


@pytest.mark.gpu
@pytest.mark.parametrize("tile", POINTS, ids=str)
def test_on_the_device(tile: Tile) -> None:
    """Between guard zones, on poisoned memory, twice the same bits: whole, odd and few channels,
    sums that are put aside."""
    for problem in problems(tile):
        for p in every(problem, named(tile), driver.device(0)):
            check(problem, p)
            check(problem, replace(p, fold=32))
