"""Where the kernel of grouped layers is planned and picked, what its plans say, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import geometric_mean

import pytest

from experiments.harness.machines import stored
from experiments.measure.ways.grouped import RESULTS, layers
from tests.gpu.families.grouped.cases import DIRECTIONS, PRECISIONS, PROBLEMS, layer, offered
from winolab.algorithm import Problem, gamma
from winolab.bench.contenders import unnamed
from winolab.bench.networks import distinct
from winolab.device import H100, datasheet
from winolab.gpu.families.grouped import cost
from winolab.gpu.families.grouped import plan as grouped
from winolab.gpu.families.grouped.config import MOST, Config
from winolab.gpu.families.grouped.plan import GroupedPlan
from winolab.gpu.families.implicit_gemm.plan import ImplicitGemmPlan
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.rates import copying
from winolab.gpu.planner.request import Request

LAYERS = {str(found): found.problem for found in distinct()}  # of networks
RESNEXT = layer((32, 56, 56, 128), 128, (3, 3), padding=1, groups=32)
H200 = datasheet("h200")
CASE = ("forward", "fp16")


def test_every_problem_is_served() -> None:
    for name, problem in PROBLEMS.items():
        for direction in DIRECTIONS:
            for precision in PRECISIONS:
                assert 0 < len(offered(problem, direction, precision)) < 30, name


def test_blocks_fit_and_cover_what_there_is() -> None:
    for name, problem in PROBLEMS.items():
        for direction in DIRECTIONS:
            for p in offered(problem, direction, "fp16"):
                c, v, (_, high, wide) = p.correlation, p.config, p.axes
                assert p.shared_memory <= p.device.shared_memory
                assert p.down * v.rows >= high.outputs
                assert p.across * v.columns >= wide.outputs
                assert p.slices * v.slice * p.bundle.groups >= c.groups
                assert p.workers * p.rounds >= p.work_tiles > p.workers * (p.rounds - 1)
                assert max(p.bundle.channels, p.bundle.out_channels) <= MOST
                assert 0 < p.predicted < 1e-3, name


def test_memory_binds_layers_of_resnext() -> None:
    """Three times what copying x and y takes at most, and half of the implicit GEMM's time."""
    p = min(grouped.plans(unnamed("forward", RESNEXT, "fp16", H200)), key=lambda p: p.predicted)
    size = 2 * (2 * math.prod(RESNEXT.x_shape) + 128 * 4 * 9)
    assert cost.data(p) == size
    assert copying(H200, size) < p.predicted < 3 * copying(H200, size)
    found = candidates(unnamed("forward", RESNEXT, "fp16", H200)).plans
    assert p.predicted < min(q.predicted for q in found if isinstance(q, ImplicitGemmPlan)) / 2


def test_the_faster_of_both_is_picked_by_kept_rows() -> None:
    """The pick of these kernels and the implicit GEMM takes 1.03 times as long as the faster on the
    mean, at most."""
    timed: dict[str, dict[str, float]] = {}
    for row in stored(RESULTS):
        if row["method"] == "winolab" and (row["direction"], row["precision"]) == CASE:
            mine = timed.setdefault(row["layer"], {})
            mine[row["kernel"]] = min(row["us"], mine.get(row["kernel"], math.inf))
    lost, own, known = [], 0, {str(v): v for v in layers()}
    for layer_, mine in timed.items():
        if GroupedPlan.kernel in mine and len(mine) == 2:
            kernel = plan(unnamed(CASE[0], known[layer_].problem, CASE[1], H200)).kernel
            lost.append(mine[kernel] / min(mine.values()))
            own += kernel == GroupedPlan.kernel
    assert len(lost) >= 17
    assert own >= 6
    assert geometric_mean(lost) < 1.03


def test_compute_capability_8_runs_it() -> None:
    for name in ("a100", "rtx4090"):
        request = Request(PROBLEMS["groups of 4"], "forward", datasheet(name), None, "fp16")
        assert any(isinstance(p, GroupedPlan) for p in candidates(request).plans)


def test_others_serve_the_rest() -> None:
    for channels, groups in ((64, 1), (96, 2), (8, 8), (12, 3)):
        other = layer((1, 8, 8, channels), channels, (3, 3), groups=groups)
        assert offered(other, "forward", "fp16") == []
    problem = PROBLEMS["groups of 4"]
    assert offered(problem, "forward", "fp16", algorithm=gamma(6, 4, 3)) == []
    assert offered(problem, "forward", "fp16", aligned=False) == []
    assert offered(problem, "forward", "fp16", aligned=False, aligned_maps=True)


def test_what_is_refused() -> None:
    problem, config = PROBLEMS["groups of 4"], Config(8, 8, 2, 2, 4, 1, 1)
    dense = layer((1, 8, 8, 64), 64, (3, 3))
    with pytest.raises(ValueError, match="do not serve 1 group of 64 channels and 64: bundles"):
        offered(dense, "forward", "fp16", config=config)
    with pytest.raises(ValueError, match="do not serve 16 groups of 4 channels and 4"):
        offered(problem, "forward", "fp16", config=Config(8, 8, 3, 2, 4, 1, 1))
    with pytest.raises(ValueError, match="need pixels that lie 16-byte aligned: copy"):
        offered(problem, "forward", "fp16", config=config, aligned=False)
    with pytest.raises(ValueError, match="need something to sum"):
        offered(layer((0, 5, 5, 8), 8, (3, 3), groups=2), "forward", "fp16")
    with pytest.raises(ValueError, match=r"90x90 .* B of 232448 B of shared memory"):
        offered(problem, "forward", "fp16", config=Config(90, 90, 2, 2, 4, 1, 1))


def test_places_have_bits_for_what_is_far_apart() -> None:
    """Outputs of a phase of backward data lie a stride apart: 16 bits count columns, 15 rows."""
    wide = layer((1, 1 << 20, 16), 16, (3,), stride=300, groups=4)
    high = layer((1, 1 << 20, 1, 16), 16, (3, 1), stride=(300, 1), groups=4)
    for problem, (rows, columns), most in ((wide, (1, 219), 1 << 16), (high, (110, 1), 1 << 15)):
        found = offered(problem, "backward_data", "fp16")
        assert found
        for p in found:
            assert (p.config.rows - 1) * p.axes[1].stride < 1 << 15
            assert (p.config.columns - 1) * p.axes[2].stride < 1 << 16
        assert (max(rows, columns) - 1) * 300 < most <= max(rows, columns) * 300
        config = Config(rows, columns, 2, 1, 2, 1, 1)
        assert offered(problem, "backward_data", "fp16", config=config)
        more = Config(rows + (rows > 1), columns + (columns > 1), 2, 1, 2, 1, 1)
        with pytest.raises(ValueError, match=r"lie too far apart by stride"):
            offered(problem, "backward_data", "fp16", config=more)
        assert offered(problem, "forward", "fp16", config=replace(more, rows=1, columns=1))


def test_a_work_tile_behind_the_last_is_counted() -> None:
    """Blocks look one further: numbers up to 2^31 have to hold where that would be."""
    for batch, length in ((1 << 31) - 2, 1), (1, (1 << 31) - 4):
        problem = layer((batch, length, 16), 16, (1,), groups=4)
        with pytest.raises(ValueError, match="work tiles or of places of a grouped layer is 2147"):
            offered(problem, "forward", "fp16")
    padded = Problem(1, 16, 16, (64,), (3,), (100,), ((0, (1 << 31) - 100),), (1,), 4)
    with pytest.raises(ValueError, match="work tiles or of places of a grouped layer is 2147"):
        offered(padded, "forward", "fp16")


def test_a_plan_says_what_it_is() -> None:
    p = offered(RESNEXT, "forward", "fp16", config=Config(8, 8, 2, 2, 4, 1, 1))[0]
    text = str(p)
    assert "kernel     grouped fp16, nothing transformed" in text
    assert "block      8 × 8 outputs of 16 groups" in text
    assert "policies   8x8 warps=2x2 bundles=4 tiles=1 kept=1" in text
    assert p.simulated == "fp16,accumulation=tensor_core:16:2:truncate"
    assert f"predicted  {1e6 * p.predicted:.1f} µs on {H100.name}" in text
