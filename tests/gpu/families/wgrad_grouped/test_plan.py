"""Where kernels of grouped layers' filter gradients are planned and picked, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import geometric_mean

import pytest

from experiments.harness.machines import stored
from experiments.measure.ways.grouped import OWN, RESULTS, layers
from tests.gpu.families.wgrad_grouped.cases import PRECISIONS, PROBLEMS, layer, offered
from winolab.algorithm import parse_algorithm
from winolab.bench.contenders import unnamed
from winolab.device import H100, datasheet
from winolab.gpu.families.reading import arrays
from winolab.gpu.families.wgrad_grouped.config import EIGHT, MOST, ROWS, WARPS, Config
from winolab.gpu.families.wgrad_grouped.plan import WgradGroupedPlan
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.rates import copying
from winolab.gpu.planner.request import Request

RESNEXT = layer((32, 56, 56, 128), 128, (3, 3), padding=1, groups=32)
H200 = datasheet("h200")
GRADIENT = "backward_filter"


def own(problem, precision: str) -> list[WgradGroupedPlan]:
    every = candidates(unnamed(GRADIENT, problem, precision, H200)).plans
    return [p for p in every if isinstance(p, WgradGroupedPlan)]


def test_every_problem_is_served() -> None:
    for name, problem in PROBLEMS.items():
        for precision in PRECISIONS:
            assert 0 < len(offered(problem, precision)) <= 24, name


def test_blocks_fit_and_cover_what_there_is() -> None:
    for name, problem in PROBLEMS.items():
        for precision in PRECISIONS:
            for p in offered(problem, precision):
                g, v = p.gradient, p.config
                assert p.shared_memory <= p.device.shared_memory
                assert p.down * v.rows >= g.output[1] > (p.down - 1) * v.rows
                assert p.across * v.columns >= g.output[2] > (p.across - 1) * v.columns
                assert p.slices * v.units * 16 >= g.groups * g.out_channels
                assert p.tap_blocks * v.taps >= p.taps > (p.tap_blocks - 1) * v.taps
                assert p.shares * p.rounds >= p.work_tiles > p.shares * (p.rounds - 1)
                assert p.span.pieces * p.span.tiles == p.span.eights <= MOST
                assert v.warps(p.span) <= WARPS
                assert 2 <= p.stages <= 4
                assert 0 < p.predicted < 1e-3, name


def test_units_meet_all_channels_of_their_groups() -> None:
    """By counting, also where groups begin within a unit and within eight channels."""
    for problem in PROBLEMS.values():
        g = offered(problem, "fp16")[0].gradient
        met = []
        for unit in range(-(-g.groups * g.out_channels // 16)):
            outs = range(16 * unit, min(16 * unit + 16, g.groups * g.out_channels))
            groups = {m // g.out_channels for m in outs}
            channels = (c for n in groups for c in range(n * g.channels, (n + 1) * g.channels))
            met.append({c // EIGHT for c in channels})
        for p in offered(problem, "fp16"):
            assert p.span.eights >= max(map(len, met))
            slices = (met[i : i + p.config.units] for i in range(0, len(met), p.config.units))
            assert p.eights == max(len(set.union(*each)) for each in slices)


def test_memory_binds_layers_of_resnext() -> None:
    """In FP16 three times what copying x and dy takes at most, and half of the implicit GEMM's
    time; in FP32 a third of it."""
    for precision, most in (("fp16", 2), ("fp32", 3)):
        found = candidates(unnamed(GRADIENT, RESNEXT, precision, H200)).plans
        p = min(own(RESNEXT, precision), key=lambda p: p.predicted)
        size = (2 * math.prod(RESNEXT.x_shape) + 128 * 4 * 9) * (2 if precision == "fp16" else 4)
        assert arrays(p.problem, p.precision, p.out_dtype) == size
        assert copying(H200, size) < p.predicted
        assert precision == "fp32" or p.predicted < 3 * copying(H200, size)
        others = min(q.predicted for q in found if q.kernel == "implicit GEMM")
        assert p.predicted < others / most * 1.2


def test_the_faster_of_both_is_picked_by_kept_rows() -> None:
    """The pick of these kernels and the others takes 1.03 times as long as the faster on the mean,
    at most, of blocks and shares as they are picked 1.04 times as long as the fastest."""
    timed: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for row in stored(RESULTS):
        if row["method"] == "winolab" and row["direction"] == GRADIENT:
            mine = timed.setdefault((row["layer"], row["precision"]), {})
            mine.setdefault(row["kernel"], {})[row["plan"]] = row["us"]
    known, lost, within = {str(v): v.problem for v in layers()}, [], []
    for (name, precision), mine in timed.items():
        picked = plan(unnamed(GRADIENT, known[name], precision, H200))
        fastest = {kernel: min(times.values()) for kernel, times in mine.items()}
        if picked.kernel in mine:
            lost.append(fastest[picked.kernel] / min(fastest.values()))
        if picked.kernel == OWN and str(picked.config) in mine[OWN]:
            within.append(mine[OWN][str(picked.config)] / fastest[OWN])
    assert len(lost) >= 30
    assert len(within) >= 20
    assert geometric_mean(lost) < 1.03
    assert geometric_mean(within) < 1.04


def test_sums_are_short() -> None:
    """No longer than a warp's of a share; an error is below that of one sum."""
    for precision in ("fp16", "fp32"):
        p = min(own(RESNEXT, precision), key=lambda p: p.predicted)
        (found,) = p.sums
        steps = -(-p.positions // (ROWS * p.config.warp_rows))
        assert found.products <= p.rounds * steps * 16
        assert found.count == p.shares * p.config.warp_rows > 30
        assert predicted_rms(p) < predicted_rms(replace(p, shares=1))


def test_a_workspace_limit_is_kept() -> None:
    for limit in (0, 1 << 16):
        for p in offered(RESNEXT, "fp16", workspace_limit=limit):
            assert p.workspace <= limit
    for p in offered(RESNEXT, "fp16"):
        assert p.workspace <= p.gradient.data


def test_compute_capability_8_runs_it() -> None:
    for name in ("a100", "rtx4090"):
        for precision in ("fp16", "fp32"):
            request = Request(PROBLEMS["groups of 4"], GRADIENT, datasheet(name), None, precision)
            assert any(isinstance(p, WgradGroupedPlan) for p in candidates(request).plans)


def test_others_serve_the_rest() -> None:
    for channels, groups in ((64, 1), (192, 2), (8, 8), (12, 3)):
        other = layer((1, 8, 8, channels), channels, (3, 3), groups=groups)
        assert offered(other, "fp16") == []
    problem = PROBLEMS["groups of 4"]
    assert offered(problem, "fp16", algorithm=parse_algorithm("winrs")) == []
    assert offered(problem, "fp16", aligned=False) == []
    assert offered(problem, "fp16", aligned=False, aligned_maps=True)
    assert offered(layer((1, 8, 8, 12), 12, (3, 3), groups=3), "fp32_split")


def test_what_is_refused() -> None:
    problem, config = PROBLEMS["groups of 4"], Config(1, 8, 8, 4, 2, 9)
    dense = layer((1, 8, 8, 64), 64, (3, 3))
    with pytest.raises(ValueError, match="do not serve 1 group of 64 channels and 64: 16 output"):
        offered(dense, "fp16", config=config)
    for other in (replace(config, warp_rows=3), replace(config, taps=10), replace(config, units=8)):
        with pytest.raises(ValueError, match="do not serve 16 groups of 4 channels and 4"):
            offered(problem, "fp16", config=other)
    with pytest.raises(ValueError, match="need pixels that lie 16-byte aligned: copy"):
        offered(problem, "fp16", config=config, aligned=False)
    with pytest.raises(ValueError, match="need something to sum"):
        offered(layer((0, 5, 5, 8), 8, (3, 3), groups=2), "fp16")
    with pytest.raises(ValueError, match=r"90x90 .* B of 232448 B of shared memory"):
        offered(problem, "fp16", config=replace(config, rows=90, columns=90))


def test_a_plan_says_what_it_is() -> None:
    (p,) = offered(RESNEXT, "fp16", config=Config(2, 8, 8, 4, 2, 9))
    text = str(p)
    assert "kernel     grouped fp16, nothing transformed" in text
    assert "block      8 × 8 positions of 2 images, 32 output channels, 9 taps" in text
    assert "policies   2x8x8 warps=4 units=2 taps=9" in text
    assert f"of 256 threads, sum in {p.shares} parts" in text
    assert p.simulated == "fp16,accumulation=tensor_core:16:2:truncate"
    assert offered(RESNEXT, "fp32_split")[0].simulated.endswith("tensor_core:8:2:truncate:48")
    assert f"predicted  {1e6 * p.predicted:.1f} µs on {H100.name}" in text
