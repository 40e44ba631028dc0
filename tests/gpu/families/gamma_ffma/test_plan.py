"""Γ on FFMA: plans of every shape, source, and parameters as the kernels read them."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest

from winolab.algorithm import Algorithm, Problem, Tile, gamma, parse_algorithm
from winolab.bench.layers import parse_layer
from winolab.device import H100
from winolab.gpu.families.gamma_ffma.config import CONFIGS, ROWS, Config, fitted
from winolab.gpu.families.gamma_ffma.plan import GammaFfmaPlan, SegmentedPlan, own_plans, plans
from winolab.gpu.families.gamma_ffma.source import source
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.ref.algebra.transforms import transforms

GAMMAS = [(4, 3, 2), (4, 2, 3), (8, 7, 2), (8, 6, 3), (8, 5, 4), (8, 4, 5), (8, 3, 6), (8, 2, 7)]
GAMMAS += [(16, 10, 7), (16, 9, 8), (16, 8, 9)]


def best(
    problem: Problem, direction="forward", algorithm: Algorithm | None = None, aligned=True
) -> GammaFfmaPlan:
    asked = Request(problem, direction, H100, algorithm, "fp32", aligned=aligned)
    return min(own_plans(asked), key=lambda p: p.predicted)


@pytest.mark.parametrize("name", ["gamma:8:6:3", "direct", None])
def test_block_shapes_of_our_own_are_what_an_unpublished_name_runs(name: str | None) -> None:
    problem = Problem.of((2, 12, 21, 16), (64, 3, 3, 16), padding=1)
    named = parse_algorithm(name) if name else None
    asked = Request(problem, "forward", H100, named, "fp32")
    assert list(plans(asked)) == list(own_plans(asked))


@pytest.mark.parametrize("variant", ["ruse+fused", "ruse+fused+segments"])
def test_a_published_kernel_is_the_only_plan_of_its_name(variant: str) -> None:
    """No block shape of ours stands beside the paper's."""
    problem = Problem.of((2, 12, 21, 16), (64, 3, 3, 16), padding=1)
    named = parse_algorithm(f"gamma:8:6:3;variant={variant}")
    (found,) = plans(Request(problem, "forward", H100, named, "fp32"))
    assert isinstance(found, SegmentedPlan if "segments" in variant else GammaFfmaPlan)
    unnamed = own_plans(Request(problem, "forward", H100, gamma(8, 6, 3), "fp32"))
    assert found.config.overlap
    assert not any(p.config.overlap or p.config.fused for p in unnamed)


@pytest.mark.parametrize("alpha", CONFIGS)
def test_every_block_shape_fits_the_kernel_and_the_gpu(alpha) -> None:
    for v in CONFIGS[alpha]:
        assert v.shared_memory(alpha) <= H100.shared_memory
        lane_m, lane_tiles = v.lane(alpha)
        states = max(1, alpha // 8)
        assert lane_m % 4 == 0
        assert lane_tiles % 4 == 0
        assert lane_m * lane_tiles * states <= 128  # accumulators of a thread
        assert lane_tiles % (4 * v.passes) == 0
        assert 256 * v.consumer_registers + v.producers * v.producer_registers <= 65536


@pytest.mark.parametrize("v", CONFIGS[8] + CONFIGS[16], ids=str)
def test_v_is_aligned_and_written_without_bank_conflicts(v: Config) -> None:
    thread = np.arange(32)
    for rows, share, cpt in product((1, *ROWS), (1, 2, 3, 5, 9), (v.cpt, 1)):
        if v.bt // rows < 4:
            continue
        stride = replace(v, rows=rows, share=share, cpt=cpt).v_stride
        assert stride % 4 == 0
        lanes = v.kc // cpt
        banks = (thread % lanes * cpt * stride + thread // lanes) % 32
        assert len(set(banks)) == 32


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize(("alpha", "n", "r"), GAMMAS)
def test_a_plan_covers_its_problem(alpha, n, r, direction) -> None:
    for height, width, channels, out_channels in ((24, 3 * n, 64, 128), (7, 2 * n + 1, 13, 37)):
        problem = Problem.of(
            (5, height + r - 1, width + r - 1, channels), (out_channels, r, r, channels)
        )
        p = best(problem, direction, gamma(alpha, n, r))
        c = p.correlation
        assert p.tile == Tile(n, r)
        assert p.shared()["winolab_gamma_ffma"] <= H100.shared_memory
        assert p.tiles_width * n >= c.output[2] > (p.tiles_width - 1) * n
        columns = p.config.bt // p.config.rows
        assert p.work_tiles * p.config.bm * p.config.rows * columns >= (
            p.columns * c.output[1] * c.out_channels
        )
        assert p.chunks * p.config.kc >= c.channels
        assert p.outer[1] % p.config.share == 0
        assert p.grid % p.config.split_k == 0
        assert p.grid <= H100.multiprocessors
        assert p.config.xvec == (1 if c.channels % 2 else 2 if alpha == 16 else 4)
        assert str(p).startswith(direction)
        assert 0 < p.predicted < 1


def test_a_small_output_splits_its_summation() -> None:
    problem = Problem.of((32, 7, 7, 512), (512, 3, 3, 512), padding=1)
    p = best(problem)
    assert p.config.split_k > 1
    assert p.grid > p.work_tiles


def test_unaligned_arrays_and_odd_channels_are_read_one_by_one() -> None:
    problem = Problem.of((2, 9, 9, 64), (32, 3, 3, 64))
    assert best(problem, aligned=False).config.xvec == 1


def test_two_level_sums_take_blocks_with_room_for_them() -> None:
    problem = Problem.of((8, 28, 28, 128), (128, 3, 3, 128), padding=1)
    p = best(problem, algorithm=parse_algorithm("gamma:8:6:3;variant=two_level:32"))
    assert (p.config.fold, p.config.kc, p.config.accumulators(8)) == (4, 8, 64)
    assert "fold=4" in str(p)
    for text, why in (("two_level:20", "multiple of 8"), ("two_level:36", "multiple of 8")):
        with pytest.raises(ValueError, match=why):
            best(problem, algorithm=gamma(8, 6, 3, variant=text))


def test_blocks_are_as_wide_as_the_output_channels_ask() -> None:
    problem = Problem.of((32, 48, 48, 63), (65, 3, 3, 63), padding=1)
    p = best(problem, algorithm=gamma(8, 6, 3))
    assert (p.config.bm, p.blocks_m) == (72, 1)
    assert [v.bm for v in fitted(CONFIGS[8][0], 8, 256)] == [128, 88]
    assert [v.bm for v in fitted(CONFIGS[8][2], 8, 40)] == [64]  # has half the accumulators


def test_the_last_block_of_filters_is_filled_up() -> None:
    """320 output channels in three blocks of 112."""
    p = best(parse_layer("128x22x22x320:320x2x2").problem, algorithm=gamma(8, 7, 2))
    assert (p.config.bm, p.blocks_m) == (112, 3)
    assert p.workspace == 4 * 8 * 2 * 320 * 336


@pytest.mark.parametrize(
    ("x_shape", "w_shape"),
    [
        ((2, 512, 512, 4), (4, 257, 257, 4)),
        ((1, 70_000, 8), (8, 65_537, 8)),
        ((1, 4, 4, 2_200_000), (8, 3, 3, 2_200_000)),
    ],
)
def test_filters_of_more_blocks_than_cuda_launches_are_refused(x_shape, w_shape) -> None:
    with pytest.raises(ValueError, match=r"more blocks than CUDA launches, 65535 .*: cut the filt"):
        best(Problem.of(x_shape, w_shape))


def test_long_filters_run_in_tiles_that_take_fewer_blocks() -> None:
    for taps, pieces in ((65_535, {1, 3, 5}), (65_538, {2, 3, 6})):  # 65538 do not run directly
        problem = Problem.of((1, 70_000, 8), (8, taps, 8))
        asked = Request(problem, "forward", H100, None, "fp32")
        found = list(own_plans(asked))
        assert {p.tile.r for p in found} == pieces
        assert all(max(p.filter_grid[1:]) <= 65_535 for p in found)


def test_long_sums_at_alpha_16_are_cut() -> None:
    for channels, sums in ((64, 1), (128, 1), (256, 2), (512, 4)):
        problem = Problem.of((4, 32, 32, channels), (64, 9, 9, channels), padding=4)
        p = best(problem, algorithm=gamma(16, 8, 9))
        v = p.config
        stages = p.chunks * 9 // v.share
        assert sums == (-(-stages // v.partial) if v.partial else 1)
        assert ("partial" in str(p)) == (sums > 1)


@pytest.mark.parametrize("tile", [Tile(6, 3), Tile(7, 2), Tile(5, 4)])
def test_the_source_holds_the_config_and_the_exact_programs(tile) -> None:
    config = CONFIGS[8][0]
    text = source(tile, "best", config)
    for field in fields(Config):
        name, value = field.name.upper(), getattr(config, field.name)
        if isinstance(value, bool):
            assert (f"#define {name}\n" in text) == value
        else:
            assert f"constexpr int {name} = {value};" in text
    made = transforms(tile.n, tile.r)
    found = made.programs
    for program, name in ((found.G, "filter"), (found.BT, "input"), (found.AT, "output")):
        assert program.cuda(f"transform_{name}") in text
    assert (found.AT.exact(), found.G.exact(), found.BT.exact()) == (made.AT, made.G, made.BT)


def test_points_change_the_source() -> None:
    config = CONFIGS[16][0]
    assert source(Tile(8, 9), "best", config) != source(Tile(8, 9), "paper", config)


@pytest.mark.parametrize("precision", ["fp32_ffma", "fp16"])
def test_tiles_that_32_bits_do_not_count_are_refused(precision: str) -> None:
    """Before they are launched."""
    problem = Problem.of(((1 << 31) - 1, 2, 2, 4), (4, 3, 3, 4), padding=1)
    with pytest.raises(ValueError, match="the number of tiles of outputs is 2147483647"):
        plan(Request(problem, "forward", H100, parse_algorithm("gamma:8:6:3"), precision))
