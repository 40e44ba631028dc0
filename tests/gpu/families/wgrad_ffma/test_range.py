"""Ω on FFMA at the ends of FP32's range, on the CPU and on a GPU: nothing lost that FP32 keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.wgrad_ffma.algorithms import algorithm
from winolab.algorithm import Problem, Tile, gamma
from winolab.bench.oracle import relative_rms
from winolab.device import H100
from winolab.gpu.families.wgrad_ffma.plan import WgradFfmaPlan, flat_plans
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution
from winolab.ref.error.metrics import noise_gain

KERNELS = [Tile(1, 1), Tile(3, 2), Tile(3, 6), Tile(2, 7), Tile(9, 8)]
PROBLEM = (2, 5, 17, 8)
Execute = Callable[[WgradFfmaPlan, np.ndarray, np.ndarray], np.ndarray]
HUGE = 1e30
TINY = 1e-40  # subnormal


def on_cpu(tile: Tile, problem: Problem) -> tuple[WgradFfmaPlan, Execute]:
    few = replace(H100, multiprocessors=4)
    found = flat_plans(Request(problem, "backward_filter", few, algorithm(tile), "fp32"))
    return next(iter(found)), hosted.execute


def on_gpu(tile: Tile, problem: Problem) -> tuple[WgradFfmaPlan, Execute]:
    from winolab.gpu import driver
    from winolab.gpu.runtime.array_layout import ArrayLayout
    from winolab.gpu.runtime.call import kernels_of

    cp = driver.cupy()
    device = driver.device(0)
    found = flat_plans(Request(problem, "backward_filter", device, algorithm(tile), "fp32"))

    def execute(p: WgradFfmaPlan, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
        arrays = cp.asarray(x), cp.asarray(dy), cp.full(problem.w_shape, cp.nan, "float32")
        a, b, out = (
            ArrayLayout.fresh(a.shape).view(a.data.ptr, filter=i == 2) for i, a in enumerate(arrays)
        )
        buckets = cp.full(max(1, p.workspace // 4), cp.nan, "float32")
        p.launch(kernels_of(p, 0), a, b, out, buckets.data.ptr, 0)
        return arrays[2].get()

    return next(iter(found)), execute


@pytest.fixture(params=[on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)], scope="module")
def compute(request):
    """x, dy -> dw by the kernel of a tile, its exact value, and the deviation of FP32's roundings.

    The last is in units of the exact values' root mean square: 0.30 u √(terms · gain), see
    test_omega_hosted.
    """

    def run(tile: Tile, x: np.ndarray, dy: np.ndarray):
        problem = Problem.of(PROBLEM, (8, 3, 2 * tile.n, 8), padding=(1, tile.n))
        p, execute = request.param(tile, problem)
        with np.errstate(over="ignore", invalid="ignore"):
            dw = execute(p, x, dy)
            exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
        gain = noise_gain(gamma(tile.alpha, tile.n, tile.r)) if tile.alpha > 1 else 1
        return dw, exact, 0.30 * 2**-24 * np.sqrt((dy[..., 0].size + 32) * gain)

    return run


def draw(tile: Tile) -> tuple[np.ndarray, np.ndarray]:
    """x and dy, uniform on [-1, 1)."""
    rng = np.random.default_rng(tile.alpha)
    shape = Problem.of(PROBLEM, (8, 3, 2 * tile.n, 8), padding=(1, tile.n)).y_shape
    return rng.uniform(-1, 1, PROBLEM).astype("f"), rng.uniform(-1, 1, shape).astype("f")


@pytest.mark.parametrize("tile", KERNELS, ids=str)
def test_powers_of_two_change_no_other_bit(compute, tile) -> None:
    x, dy = draw(tile)
    dw = compute(tile, x, dy)[0]
    scaled = compute(tile, x * np.float32(2.0**90), dy * np.float32(2.0**-70))[0]
    assert np.array_equal(scaled, dw * np.float32(2.0**20))


@pytest.mark.parametrize("factors", [(HUGE, 1.0), (1.0, HUGE), (HUGE, 1 / HUGE)])
@pytest.mark.parametrize("tile", KERNELS, ids=str)
def test_large_numbers_do_not_overflow(compute, tile, factors) -> None:
    x, dy = (a * np.float32(f) for a, f in zip(draw(tile), factors, strict=True))
    dw, exact, deviation = compute(tile, x, dy)
    assert relative_rms(dw, exact) <= 3 * deviation


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("tile", KERNELS, ids=str)
def test_one_huge_element_costs_other_channels_nothing(compute, tile, side) -> None:
    arrays = draw(tile)
    arrays[side][1, 2, 7, 3] = HUGE
    dw, exact, deviation = compute(tile, *arrays)
    # one unit's error, not many that average out
    assert relative_rms(dw, exact) <= 3 * deviation * 8
    others = np.arange(8) != 3
    kept = (..., others) if side == 0 else (others,)
    assert relative_rms(dw[kept], exact[kept]) <= 3 * deviation


@pytest.mark.parametrize("tile", KERNELS, ids=str)
def test_subnormal_numbers_are_not_flushed(compute, tile) -> None:
    x, dy = draw(tile)
    dw, exact, deviation = compute(tile, x * np.float32(TINY), dy * np.float32(1e3))
    coarse = 2.0**-150 / TINY / 2**-24  # a subnormal's rounding in units of FP32's
    assert relative_rms(dw, exact) <= 3 * deviation * coarse


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("tile", KERNELS, ids=str)
def test_what_is_not_finite_stays_so_and_stays_in_its_channels(compute, tile, value) -> None:
    x, dy = draw(tile)
    x[0, 1, 4, 2] = dy[1, 3, 6, 5] = value
    dw, exact, deviation = compute(tile, x, dy)
    assert not np.isfinite(dw[~np.isfinite(exact)]).any()
    kept = np.ix_(np.arange(8) != 5, range(3), range(2 * tile.n), np.arange(8) != 2)
    assert relative_rms(dw[kept], exact[kept]) <= 3 * deviation


@pytest.mark.parametrize("tile", KERNELS, ids=str)
def test_zeros_give_zeros(compute, tile) -> None:
    x, dy = draw(tile)
    assert not compute(tile, 0 * x, dy)[0].any()
    assert not compute(tile, x, 0 * dy)[0].any()
