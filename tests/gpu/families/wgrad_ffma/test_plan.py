"""Ω on FFMA: units and segments, plans of every shape, compiled kernels, results against FP64."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gpu.families.wgrad_ffma.on_device import check, problems, view
from winolab.algorithm import Algorithm, Problem, Tile, direct, gamma, parse_algorithm
from winolab.algorithm import omega as named
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.families.wgrad import (
    ADMITTED,
    Gradient,
    Timing,
    choose,
)
from winolab.gpu.families.wgrad_ffma.config import CONFIGS, Config
from winolab.gpu.families.wgrad_ffma.cost import ends, instructions, spent
from winolab.gpu.families.wgrad_ffma.plan import WgradFfmaPlan, flat_plans
from winolab.gpu.families.wgrad_ffma.source import source
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import loader
from winolab.ref.algebra.transforms import transforms
from winolab.ref.algorithms.winrs.kernels import TILES
from winolab.ref.error.metrics import ADMISSIBLE, error_ratio

OMEGAS = [t for t in TILES["fp32"] if t.alpha > 1]
ONE_OF = {1: Tile(1, 1), 4: Tile(3, 2), 8: Tile(3, 6), 16: Tile(9, 8)}


def every(
    problem: Problem, algorithm: Algorithm | None = None, *, device=H100, **how
) -> list[WgradFfmaPlan]:
    return list(flat_plans(Request(problem, "backward_filter", device, algorithm, "fp32", **how)))


def best(problem: Problem, algorithm: Algorithm | None = None, **how) -> WgradFfmaPlan:
    return min(every(problem, algorithm, **how), key=lambda p: p.predicted)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 5), st.integers(0, 4), st.integers(0, 9), st.integers(1, 6)
)
def test_ends_are_units_that_lie_partly_outside(size, taps, padding, more, r) -> None:
    if size + 2 * padding < taps:
        return
    g, tile = Gradient.of(Problem.of((1, size, 1), (1, taps, 1), padding=padding)), Tile(taps, r)
    pitch = g.output[2] + more
    starts = range(0, pitch, r if pitch % r == 0 else 1)
    at_ends = [
        at < padding or at + tile.inputs > size + padding or at + r > g.output[2] for at in starts
    ]
    assert ends(g, tile, pitch) == 1 - (1 - sum(at_ends) / len(starts)) ** 2


def test_ends_of_a_row_are_counted_without_going_along_it() -> None:
    """No memory holds so long a row; five million took 7 s."""
    long, g = 1 << 44, Gradient.of(Problem.of((1, 9, 1), (1, 3, 1), padding=1))
    g = replace(g, input=(1, 1, long), output=(1, 1, long))
    assert 0 < ends(g, Tile(3, 2), long) < 1e-9


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 5), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)
)
def test_rows_are_the_outputs_that_meet_an_input(size, taps, low, high, tap) -> None:
    if size + low + high < taps or tap >= taps:
        return
    g = Gradient.of(Problem.of((1, size, 20, 1), (1, taps, 3, 1), padding=((low, high), (0, 0))))
    meet = [o for o in range(g.output[1]) if 0 <= o + tap - low < size]
    first, last = g.rows(1, tap)
    assert list(range(first, last)) == meet


@pytest.mark.parametrize("tile", OMEGAS, ids=str)
def test_units_cover_every_column_of_dy_once(tile) -> None:
    """Also where they run from one row into the next: no column of x meets two rows of dy."""
    for width in range(1, 40):
        g = Gradient.of(Problem.of((2, 3, width + tile.n - 1, 1), (1, 1, tile.n, 1)))
        for pitch in filter(None, (g.whole_pitch(tile), g.wrapped_pitch(tile))):
            positions = np.arange(g.units(tile, pitch) * tile.r)
            row, column = positions // pitch, positions % pitch
            covered = [(r, c) for r, c in zip(row, column, strict=True) if c < width and r < 6]
            assert covered == [(r, c) for r in range(6) for c in range(width)]
            assert pitch % tile.r == 0 or width + tile.n - 1 <= pitch >= tile.alpha


@pytest.mark.parametrize("tile", [Tile(3, 6), Tile(5, 4), Tile(2, 3)], ids=str)
def test_rows_share_padding_only_where_no_column_is_lost(tile) -> None:
    """What a tap meets in a row that holds fewer columns than it reads is 0 in the row itself."""
    shared = 0
    for width in range(10, 20):
        for taps, low, high in itertools.product((tile.n, 2 * tile.n), range(6), range(6)):
            g = Gradient.of(Problem.of((1, 3, width, 1), (1, 1, taps, 1), padding=(0, (low, high))))
            pitch = g.wrapped_pitch(tile)
            if pitch is None:
                continue
            shared += pitch < g.output[2] + tile.n - 1
            for column, tap in itertools.product(range(g.output[2]), range(taps)):
                first = tap // tile.n * tile.n - low  # of the row of taps
                at = column + tap % tile.n
                met = at + first if at < pitch else at - pitch + first
                inside, is_met = 0 <= column + tap - low < width, 0 <= met < width
                assert (at < pitch and inside == is_met) or not (inside or is_met)
    assert shared


@pytest.mark.parametrize("alpha", CONFIGS)
def test_every_block_shape_fits_the_kernel_and_the_gpu(alpha) -> None:
    for v in CONFIGS[alpha]:
        assert v.shared_memory(ONE_OF[alpha]) <= H100.shared_memory
        lane_i, lane_o = v.lane(alpha)
        assert lane_i % (4 * v.passes) == 0
        assert lane_o % 4 == 0
        states = max(1, alpha // v.state_blocks // 8)  # of a warp
        assert lane_i * lane_o * states <= 128  # accumulators of a thread
        # setmaxnreg waits for ever for what the launch, 168 a thread, did not allocate
        assert 256 * v.consumer_registers + 128 * v.producer_registers <= 384 * 168


@pytest.mark.parametrize("tile", OMEGAS, ids=str)
def test_a_plan_covers_its_problem(tile) -> None:
    algorithm = named(tile.alpha, tile.n, tile.r)
    for width, channels, out_channels in ((3 * tile.n, 64, 128), (tile.n, 13, 37)):
        problem = Problem.of(
            (5, 24, 30, channels), (out_channels, 3, width, channels), padding=(1, 2)
        )
        for p in every(problem, algorithm):
            assert p.tile == tile
            assert p.kernel == f"Ω{tile.alpha}({tile.n},{tile.r})"
            assert p.shared()["winolab_wgrad_ffma"] <= H100.shared_memory
            taps = 3 * (width // tile.n)
            assert p.blocks * p.config.bi * p.config.bo >= taps * channels * out_channels
            assert p.grid <= H100.multiprocessors
            assert p.workspace == 4 * (p.segments - 1) * math.prod(problem.w_shape)
            sizes = (channels, p.config.ci), (out_channels, p.config.co)
            assert p.config.vector == all(c % vector == 0 for c, vector in sizes)
            assert p.config.wrap == (p.pitch % tile.r > 0)
            assert str(p).startswith("backward_filter")
            assert 0 < p.predicted < 1


def test_few_blocks_are_filled_up_by_segments() -> None:
    for batch, size, channels in ((1, 224, 64), (2, 56, 64), (32, 224, 64), (1, 28, 256)):
        problem = Problem.of((batch, size, size, channels), (channels, 3, 3, channels), padding=1)
        assert best(problem).grid >= 0.7 * H100.multiprocessors


@pytest.mark.parametrize("segments", ["", ";segments=3"])
def test_where_time_goes(segments) -> None:
    """All of it is in the parts; what is left is the launches' and, of segments, their sum's."""
    problem = Problem.of((32, 28, 28, 128), (128, 3, 3, 128), padding=1)
    asked = parse_algorithm(f"omega:8:3:6{segments}")
    for plan in flat_plans(Request(problem, "backward_filter", H100, asked, "fp32_ffma")):
        parts = spent(plan)
        assert sum(parts.values()) == pytest.approx(plan.predicted)
        assert min(parts.values()) >= 0
        assert (parts["launch and sums"] > 1.5 * MODEL.device.launch) == (plan.segments > 1)


def test_a_limit_bounds_the_workspace_and_none_below_zero_is_met() -> None:
    problem = Problem.of((32, 112, 112, 64), (64, 3, 3, 64), padding=1)
    free = best(problem)
    assert free.segments > 1
    size = 4 * math.prod(problem.w_shape)
    assert best(problem, workspace_limit=3 * size).workspace <= 3 * size
    assert best(problem, workspace_limit=0).workspace == 0
    with pytest.raises(ValueError, match="a workspace of 0 B is the smallest"):
        best(problem, workspace_limit=-1)
    with pytest.raises(ValueError, match=rf"{4 * size} B .* is {size} B: .* than 5"):
        best(problem, named(8, 3, 6, segments=5), workspace_limit=size)
    assert best(problem, named(8, 3, 6, segments=5)).segments == 5


def test_sixteen_bit_results_keep_every_segment_in_the_workspace() -> None:
    g = Gradient.of(Problem.of((8, 32, 32, 64), (64, 3, 3, 64), padding=1))
    timing = Timing(blocks=3, slots=132, unit=2e-7, work_tile=4e-6, step=8)
    buckets = [choose(g, 1000, timing, first=f, count=4).workspace for f in (True, False)]
    assert buckets == [3 * 4 * g.weights, 4 * 4 * g.weights]
    assert choose(g, 1000, timing, 0, first=False).workspace == 0


def test_the_planner_takes_other_widths_and_only_admissible_tiles() -> None:
    for width in range(1, 14):
        problem = Problem.of((8, 20, 40, 32), (32, 3, width, 32), padding=(1, 0))
        chosen = {p.tile for p in every(problem)}
        assert Tile(1, 1) in chosen
        assert width == 1 or len(chosen) > 1
        assert all(tile.alpha <= 8 for tile in chosen)
    assert every(problem, direct())[0].tile == Tile(1, 1)


def test_what_planning_takes_for_granted() -> None:
    """Which tiles are admissible and what transforms cost, without building their programs."""
    for tile in OMEGAS:
        for points in ("best", "paper"):
            assert (error_ratio(tile, points) <= ADMISSIBLE) == (tile.alpha <= ADMITTED)
            made = transforms(tile.n, tile.r, points).programs
            counts = [p.counts.instructions for p in (made.G, made.BT)]
            assert np.allclose(instructions(tile), counts, rtol=0, atol=1)


def test_what_no_kernel_computes_is_refused() -> None:
    problem = Problem.of((2, 9, 9, 8), (8, 3, 3, 8))
    with pytest.raises(ValueError, match="must be a multiple"):
        every(problem, named(8, 5, 4))
    with pytest.raises(ValueError, match="the CUDA kernels are omega:4:2:3, 4:3:2"):
        every(problem, named(6, 3, 4))
    with pytest.raises(ValueError, match="not gamma:8:6:3"):
        every(problem, gamma(8, 6, 3))
    with pytest.raises(ValueError, match="stride 1"):
        every(Problem.of((2, 9, 9, 8), (8, 3, 3, 8), stride=2))
    with pytest.raises(ValueError, match=r"count up to 2\^31"):
        every(Problem.of((1 << 20, 64, 64, 1), (1, 3, 3, 1), padding=1))


def test_the_source_holds_the_config_and_the_exact_programs() -> None:
    config = CONFIGS[8][0]
    text = source(Tile(3, 6), "best", config)
    said = {"paired", "turned", "consumers"}  # by the programs, and by expressions of the kernel
    assert {field.name for field in fields(Config)} == {
        n.lower() for n in config.constants()
    } | said
    for name, value in config.constants().items():
        assert f"constexpr int {name} = {value};" in text
    programs = transforms(3, 6).programs
    for program, name in ((programs.G, "filter"), (programs.BT, "input"), (programs.AT, "output")):
        assert program.cuda(f"transform_{name}") in text


@pytest.mark.gpu
@pytest.mark.parametrize("tile", ONE_OF.values(), ids=str)
def test_every_block_shape_with_whole_odd_and_few_channels(tile) -> None:
    """In each of its ways of loading; every_kernel has every tile."""
    algorithm = named(tile.alpha, tile.n, tile.r) if tile.alpha > 1 else direct()
    for problem in problems(tile):
        for p in every(problem, algorithm, device=driver.device(0)):
            check(problem, p)


@pytest.mark.gpu
def test_long_sums_are_put_aside() -> None:
    problem = Problem.of((4, 16, 32, 40), (40, 3, 3, 40), padding=1)
    for segments in (1, 3):
        for p in every(problem, named(8, 3, 6, segments=segments), device=driver.device(0)):
            check(problem, replace(p, fold=32))


@pytest.mark.gpu
@pytest.mark.parametrize("tile", ONE_OF.values(), ids=str)
def test_the_same_bits_every_time(tile) -> None:
    """Hundreds of launches, two at a time among other kernels, into outputs of NaN."""
    cp = driver.cupy()
    problem = Problem.of((8, 30, 28, 128), (192, 3, 2 * tile.n, 128), padding=(1, tile.n // 2))
    algorithm = named(tile.alpha, tile.n, tile.r) if tile.alpha > 1 else direct()
    rng = cp.random.default_rng(1)
    x, dy = (rng.random(s, dtype="float32") * 2 - 1 for s in (problem.x_shape, problem.y_shape))
    noise = cp.ones((512, 512), "float32")
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    for p in every(problem, algorithm, device=driver.device(0)):
        kernels = loader.load(p.source(), str(p.config), p.shared(), 0)
        outs, buckets = (
            [cp.empty(n, "float32") for _ in range(3)]
            for n in (math.prod(problem.w_shape), p.workspace // 4 + 1)
        )
        different = [cp.zeros((), "int64") for _ in streams]
        cp.cuda.Device().synchronize()
        for i in range(100):
            which = i % 2 if i else 2
            with streams[i % 2]:
                outs[which].fill(cp.nan)
                if i % 3 == 0:
                    cp.matmul(noise, noise)
                out = view(outs[which].reshape(problem.w_shape), 5)
                p.launch(kernels, view(x, 4), view(dy, 4), out, buckets[which].data.ptr, 0)
                if not i:
                    streams[0].synchronize()
                different[i % 2] += cp.count_nonzero(outs[which] != outs[2])
        cp.cuda.Device().synchronize()
        assert [int(d) for d in different] == [0, 0], str(p)
