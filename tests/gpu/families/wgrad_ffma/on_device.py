"""One call of Ω on FFMA units on a GPU, between guard zones."""

from __future__ import annotations

import math

from winolab.algorithm import Problem, Tile, tiled
from winolab.bench import oracle
from winolab.gpu import driver
from winolab.gpu.families.wgrad_ffma.plan import WgradFfmaPlan
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import three
from winolab.gpu.runtime import loader
from winolab.ref.error.metrics import noise_gain

GUARD = 4096


def view(array, kept: int) -> View:
    first, *spatial, last = (s // array.itemsize for s in array.strides)
    return View(array.data.ptr, (first, *three(tuple(spatial), 0), last)[:kept])


def problems(tile: Tile) -> list[Problem]:
    """Layers with whole, odd and few channels, and rows of taps of one and of two tiles."""
    return [
        Problem.of(x, (out_channels, *taps, x[-1]), padding=padding)
        for x, out_channels, taps, padding in (
            ((4, 12, 23, 64), 64, (3, tile.n), (1, tile.n // 2)),
            ((3, 9, 29, 13), 37, (2, 2 * tile.n), (0, 2)),
            ((2, 7, 7, 96), 130, (3, tile.n), (2, tile.n)),
            ((1, 1, 60, 3), 8, (1, tile.n), 0),
        )
    ]


def check(problem: Problem, p: WgradFfmaPlan, seed: int = 0) -> None:
    """Every element written and right, nothing beside it touched, twice the same bits."""
    cp = driver.cupy()
    rng = cp.random.default_rng(seed)
    x, dy = (rng.random(s, dtype="float32") * 2 - 1 for s in (problem.x_shape, problem.y_shape))
    kernels = loader.load(p.source(), str(p.config), p.shared(), 0)
    results = []
    for _ in range(2):
        memory = cp.full(math.prod(problem.w_shape) + 2 * GUARD, cp.nan, "float32")
        buckets = cp.full(p.workspace // 4 + 2 * GUARD, cp.nan, "float32")
        dw = memory[GUARD:-GUARD].reshape(problem.w_shape)
        a, b, out = view(x, 4), view(dy, 4), view(dw, 5)
        p.launch(kernels, a, b, out, buckets[GUARD:].data.ptr, 0)
        for zone in (memory[:GUARD], memory[-GUARD:], buckets[:GUARD], buckets[-GUARD:]):
            assert bool(cp.isnan(zone).all())
        results.append(dw)
    assert bool((results[0] == results[1]).all())
    exact = oracle.fp64("backward_filter", problem, x, dy)
    if not bool(exact.any()):
        assert not bool(results[0].any())
        return
    # Sequential sums on zero-mean data have 0.30 u √(terms · gain) (metrics.noise_gain); the
    # transforms' own roundings and small samples are given a factor of 3.
    terms = problem.batch * math.prod(problem.output)
    tile = p.tile
    gain = noise_gain(tiled((tile,), p.points)) if tile.alpha > 1 else 1
    limit = 3 * 0.30 * 2**-24 * math.sqrt((terms + 32) * gain)
    assert oracle.relative_rms(results[0], exact) <= limit
