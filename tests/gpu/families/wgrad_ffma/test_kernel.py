"""The Ω kernels' own source on the CPU, against FP64: every tile, rows of both kinds, segments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.wgrad_ffma import flat
from tests.gpu.families.wgrad_ffma.algorithms import algorithm
from winolab.algorithm import Problem, Tile, gamma
from winolab.bench.oracle import relative_rms
from winolab.device import H100
from winolab.gpu.families.wgrad_ffma.plan import WgradFfmaPlan, flat_plans
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution
from winolab.ref.algorithms.winrs.kernels import TILES
from winolab.ref.error.metrics import noise_gain

FEW = replace(H100, multiprocessors=4)  # so that blocks walk over several work tiles


def every(problem: Problem, tile: Tile, aligned: bool = True, **options) -> list[WgradFfmaPlan]:
    how = algorithm(tile, **options)
    return list(flat_plans(Request(problem, "backward_filter", FEW, how, "fp32", aligned=aligned)))


def check(p: WgradFfmaPlan) -> None:
    """Right, nothing beside the result touched, and the same with threads in another order."""
    rng = np.random.default_rng(0)
    x, dy = (rng.uniform(-1, 1, s).astype("f") for s in (p.problem.x_shape, p.problem.y_shape))
    dw = hosted.execute(p, x, dy)
    assert np.array_equal(dw, hosted.execute(p, x, dy, seed=3))
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), p.problem)
    # Sequential sums on zero-mean data have 0.30 u √(terms · gain) (metrics.noise_gain); the
    # transforms' own roundings and small samples are given a factor of 3.
    gain = noise_gain(gamma(p.tile.alpha, p.tile.n, p.tile.r)) if p.tile.alpha > 1 else 1
    terms = dy[..., 0].size + 32
    error = relative_rms(dw, exact)
    assert error <= 3 * 0.30 * 2**-24 * np.sqrt(terms * gain)


@pytest.mark.parametrize("tile", TILES["fp32"], ids=str)
def test_every_kernel(tile) -> None:
    """Odd channels, more than one tile a filter row, rows of a whole and a partial unit."""
    problem = Problem.of((2, 4, 2 * tile.n + 5, 5), (7, 3, 2 * tile.n, 5), padding=(1, tile.n))
    check(every(problem, tile, segments=2)[0])


@pytest.mark.parametrize("aligned", [True, False])
def test_units_that_run_from_one_row_into_the_next(aligned) -> None:
    """Also into the next image and depth; with padding that rows share, and that they do not."""
    for x, w, padding in (
        ((3, 4, 7, 8), (8, 3, 3, 8), 1),
        ((2, 2, 3, 14, 8), (4, 2, 3, 3, 8), (1, 1, (0, 2))),
        ((5, 9, 8), (4, 3, 8), 0),
    ):
        wrapped = [p for p in every(Problem.of(x, w, padding=padding), Tile(3, 6), aligned)
                   if p.config.wrap]  # fmt: skip
        check(wrapped[0])


def test_long_sums_are_put_aside() -> None:
    problem = Problem.of((4, 6, 20, 8), (8, 3, 3, 8), padding=1)
    for segments in (1, 3):
        check(replace(every(problem, Tile(3, 6), segments=segments)[0], fold=16))


BITS = {
    # tile, x, w, padding, segments, fold in units
    "one segment": (Tile(3, 6), (2, 4, 13, 5), (7, 3, 3, 5), 1, 1, 2048),
    "many segments, rows and a partial unit": (Tile(3, 6), (2, 5, 11, 4), (4, 3, 6, 4), 1, 5, 512),
    "folded": (Tile(5, 4), (3, 4, 12, 4), (4, 2, 5, 4), (1, 2), 2, 8),
    "groups and depths": (Tile(3, 2), (2, 2, 3, 9, 8), (4, 2, 2, 3, 4), 1, 3, 64),
    "16 states": (Tile(9, 8), (1, 3, 19, 4), (4, 2, 9, 4), (1, 4), 2, 40),
    "more segments than units": (Tile(7, 2), (1, 1, 10, 4), (4, 1, 7, 4), (0, 3), 9, 2048),
}


@pytest.mark.parametrize("case", BITS.values(), ids=BITS)
@pytest.mark.parametrize("wrap", [0, 1])
def test_every_bit_is_the_simulation_s(case, wrap) -> None:
    """Segments are ranges of the flat sum, in rows of whole units and in such that run on into the
    next row: `omega:`, as test_winrs has it for boxes."""
    tile, x, w, padding, segments, fold = case
    problem = Problem.of(x, w, padding=padding, groups=x[-1] // w[-1])
    plans = [p for p in every(problem, tile, segments=segments) if p.config.wrap == wrap]
    if not plans:
        pytest.skip("whole units fill these rows")
    p = replace(plans[0], fold=fold)
    assert p.segments == segments
    rng = np.random.default_rng(0)
    x_, dy = (rng.uniform(-1, 1, s).astype("f") for s in (problem.x_shape, problem.y_shape))
    assert np.array_equal(hosted.execute(p, x_, dy), flat.simulated(p, x_, dy))


@pytest.mark.parametrize("tile", [Tile(3, 2), Tile(3, 6), Tile(9, 8)], ids=str)
def test_policies_that_the_paper_names_can_be_turned_off(tile) -> None:
    """Lanes that stage their floats in no turn change no bit; rows without pairs err as much."""
    problem = Problem.of((2, 4, 2 * tile.n + 5, 5), (7, 3, tile.n, 5), padding=(1, tile.n // 2))
    p = every(problem, tile)[0]
    rng = np.random.default_rng(0)
    x, dy = (rng.uniform(-1, 1, s).astype("f") for s in (problem.x_shape, problem.y_shape))
    straight, alone = (replace(p, config=replace(p.config, **{name: 0}))
                       for name in ("turned", "paired"))  # fmt: skip
    assert np.array_equal(hosted.execute(p, x, dy), hosted.execute(straight, x, dy))
    assert len({p.source(), straight.source(), alone.source()}) == 3
    check(alone)


def test_groups_and_every_block_shape() -> None:
    for tile in (Tile(3, 2), Tile(3, 6)):
        for p in every(Problem.of((2, 3, 8, 12), (10, 2, tile.n, 6), groups=2), tile):
            check(p)


def test_infinite_sums_are_not_nan() -> None:
    """The compensated sum of three finite buckets: an infinite one has lost nothing."""
    problem = Problem.of((1, 4, 24, 4), (4, 3, 6, 4))
    p = every(problem, Tile(3, 6), segments=3)[0]
    x, dy = (np.full(s, 3.2e18, "f") for s in (problem.x_shape, problem.y_shape))
    assert (hosted.execute(p, x, dy) == np.inf).all()
