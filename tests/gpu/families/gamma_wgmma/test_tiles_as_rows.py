"""Γ on Tensor Cores with tiles as wgmma's rows: sums in one order, none less exact than with output
channels there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.gamma_wgmma.policies import BOUND, has
from winolab.algorithm import Problem, parse_algorithm
from winolab.bench.oracle import relative_rms
from winolab.device import H100, Device
from winolab.gpu.families.gamma_wgmma.plan import GammaWgmmaPlan, plans
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution

CASES = [
    # direction, x, w, padding, tile; columns of blocks odd and even, filter rows of uneven stages
    ("forward", (3, 16, 16, 20), (68, 3, 3, 20), 1, "gamma:8:6:3"),
    ("backward_data", (2, 9, 12, 20), (20, 2, 2, 20), 0, "gamma:8:7:2"),
    ("forward", (1, 7, 9, 20), (8, 7, 7, 20), 3, "gamma:8:2:7"),
    ("backward_data", (4, 5, 13, 20), (20, 3, 3, 20), 1, "gamma:6:4:3"),
    ("forward", (1, 3, 9, 20, 8), (8, 2, 4, 4, 8), (0, 1, 1), "gamma:6:3:4"),
    ("forward", (2, 9, 12, 8), (8, 3, 3, 8), 1, "gamma:4:2:3"),
    ("forward", (2, 9, 16, 20), (68, 7, 7, 20), 3, "gamma:10:4:7"),
    ("backward_data", (4, 6, 20, 48), (20, 4, 6, 48), 1, "gamma:10:5:6"),
]


# Filters are farther than its L2, so that pairs of blocks bring them for one another.
FAR = replace(H100, l2=1)


def _found(
    problem: Problem, direction: str, text: str, device: Device = H100
) -> list[GammaWgmmaPlan]:
    request = Request(problem, direction, device, parse_algorithm(text), "fp32_split")
    return [p for p in plans(request) if p.config.run and p.config.split_k == 1]


@pytest.mark.parametrize(("direction", "x_shape", "w_shape", "padding", "text"), CASES)
def test_sums_run_in_one_order_and_lose_less_than_with_channels_left(
    direction, x_shape, w_shape, padding, text
) -> None:
    """Every way of stages, waiting filters, pairs and exchange. Products with a low part come first
    there, filter rows apart with channels left."""
    problem = Problem.of(x_shape, w_shape, padding=padding)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("float32") for s in (shape, problem.w_shape))
    reference = convolution.forward if direction == "forward" else convolution.backward_data
    exact = reference(a.astype(float), b.astype(float), problem)
    found = _found(problem, direction, text) + _found(problem, direction, text, FAR)
    every, left, first = {}, {}, {}
    for plan in (p for p in found if p.config.u_ring):
        v = plan.config
        every.setdefault((v.share, v.rest, v.multicast, v.exchanges), plan)
    # A case that has pairs of blocks, too, takes every second way: numbers of rows take turns.
    turned = list(every.values())[:: 1 + (len(every) > 3 and len({p[2] for p in every}) > 1)]
    assert turned
    for plan in found:
        v = plan.config
        asked = not v.u_ring and not v.u_ahead and any(p.config.share == v.share for p in turned)
        if asked and v.share not in left:
            left[v.share] = relative_rms(hosted.execute(plan, a, b), exact)
    for plan in turned:
        v = plan.config
        result = hosted.execute(plan, a, b)
        assert np.array_equal(result, first.setdefault(v.share, result)), str(v)
        if v.share not in left:  # they have no other form
            assert relative_rms(result, exact) <= 1.2 * predicted_rms(plan), str(v)
            continue
        # In two rows only products with a low part change places: these are 2^-11 of the sum.
        most = left[v.share] * (1 + (v.share == 2) * 2**-11)
        assert relative_rms(result, exact) <= most, str(v)


@pytest.mark.parametrize("multicast", [1, 2])
def test_no_bank_conflicts(multicast: int) -> None:
    problem = Problem.of((2, 8, 20, 16), (64, 3, 3, 16), padding=1)
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, s).astype("f") for s in (problem.x_shape, problem.w_shape))
    found = _found(problem, "forward", "gamma:6:4:3", FAR if multicast == 2 else H100)
    plan = next(
        p for p in found if has(p, share=3, rows=8, multicast=multicast) and p.config.u_ring
    )
    asked = hosted.requests(plan, a, b)["winolab_gamma_wgmma"]
    assert {q.member for q in asked} >= {"v", "raw", "staging"}
    assert all(q.wavefronts == q.phases for q in asked)


def test_multicast_is_offered_in_pairs() -> None:
    problem = Problem.of((1, 8, 20, 16), (64, 3, 3, 16), padding=1)
    found = _found(problem, "forward", "gamma:6:4:3", FAR)
    assert any(plan.config.multicast == 2 for plan in found)
    for plan in found:
        assert plan.work_tiles % plan.config.multicast == plan.grid % plan.config.multicast == 0


@pytest.mark.parametrize(("channels", "outputs"), [(96, 96), (65, 80), (128, 128), (7, 16)])
def test_channels_that_are_not_there_take_no_workspace(channels, outputs) -> None:
    problem = Problem.of((32, 24, 24, 64), (channels, 3, 3, 64), padding=1)
    for plan in plans(Request(problem, "forward", H100, None, "fp32_split")):
        rows = 3 if plan.config.rest else plan.outer[1]
        stored = outputs if plan.config.u_ring else plan.blocks_m * 64
        assert plan.transformed == stored * rows * plan.outer[2] * 64 * plan.tile.alpha * 4
        assert plan.config.narrow == (outputs % 64 if plan.config.u_ring else 0)


@pytest.mark.parametrize(("channels", "narrow"), [(96, 32), (76, 16), (172, 48)])
@pytest.mark.parametrize("multicast", [1, 2])
def test_blocks_take_turns_with_channels_where_some_have_fewer(channels, narrow, multicast) -> None:
    """As many multiprocessors as blocks of channels, twice, and two rounds of work tiles."""
    problem = Problem.of((4, 16, 20, 12), (channels, 2, 2, 12), padding=(1, 0))
    device = FAR if multicast == 2 else H100
    device = replace(device, multiprocessors=-(-channels // 64) * 2)
    request = Request(problem, "forward", device, parse_algorithm("gamma:6:5:2"), "fp32_split")
    plan = next(p for p in plans(request) if p.config.narrow and p.config.multicast == multicast)
    assert plan.config.narrow == narrow
    assert plan.work_tiles > plan.grid
    assert plan.grid // multicast % plan.blocks_m == 0
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype("float32") for s in (problem.x_shape, problem.w_shape))
    exact = convolution.forward(a.astype(float), b.astype(float), problem)
    assert relative_rms(hosted.execute(plan, a, b), exact) <= BOUND
