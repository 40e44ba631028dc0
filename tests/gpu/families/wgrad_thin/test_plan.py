"""Where kernels of thin layers' filter gradients are planned and picked, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.gpu.families.wgrad_thin.cases import PRECISIONS, PROBLEMS, layer, offered
from winolab.algorithm import parse_algorithm
from winolab.bench.contenders import unnamed
from winolab.bench.networks import distinct
from winolab.device import datasheet
from winolab.gpu.families.reading import arrays
from winolab.gpu.families.wgrad_thin import plan as wgrad_thin
from winolab.gpu.families.wgrad_thin.config import MOST_SHARED, Config
from winolab.gpu.families.wgrad_thin.plan import WgradThinPlan
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Request

LAYERS = {str(found): found.problem for found in distinct()}  # of networks
H200 = datasheet("h200")
LAST, STEM = "32x512x512x64>2x1x1", "32x512x512x3>64x3x3p1"


def fastest(precision: str, name: str) -> WgradThinPlan:
    request = unnamed("backward_filter", LAYERS[name], precision, H200)
    return min(wgrad_thin.plans(request), key=lambda p: p.predicted)


def test_the_wide_side_is_the_other_one() -> None:
    def wide(problem) -> set[str]:
        return {p.config.wide for p in offered(problem, "fp16")}

    assert wide(PROBLEMS["1x1 to 2"]) == {"x"}
    assert wide(PROBLEMS["stem"]) == {"dy"}
    assert wide(PROBLEMS["both few"]) == {"x", "dy"}
    assert wide(layer((1, 8, 8, 64), 64, (3, 3))) == set()
    assert wide(layer((1, 8, 8, 6), 6, (3, 3), groups=2)) == set()


def test_blocks_cover_channels_columns_and_positions() -> None:
    for name, problem in PROBLEMS.items():
        for precision in PRECISIONS:
            for p in offered(problem, precision):
                v = p.config
                assert v.threads == v.lanes * v.column_groups * v.slots <= 256, name
                assert v.shared_memory <= MOST_SHARED
                assert p.blocks_m * v.width >= p.channels > (p.blocks_m - 1) * v.width
                assert p.blocks_n * v.columns >= p.columns > (p.blocks_n - 1) * v.columns
                assert p.channels * p.columns == p.gradient.weights
                assert 1 <= p.shares <= p.chunks
                assert p.chunks * v.together >= p.positions > (p.chunks - 1) * v.together
                assert 0 < p.predicted < 1e-3


def test_memory_binds_the_last_layer_and_products_a_stem() -> None:
    last = fastest("bf16", LAST)
    data = arrays(last.problem, last.precision, last.out_dtype)
    assert data == 2 * 32 * 512**2 * (64 + 2) + 2 * 128
    copied = data / (2.85e12 * H200.memory_rate)
    assert copied < last.predicted < 1.3 * copied
    stem = fastest("fp32", STEM)
    products = 32 * 512**2 * 64 * 27 / (stem.device.lanes * stem.device.multiprocessors)
    assert products / stem.device.clock < stem.predicted < 3 * products / stem.device.clock
    assert arrays(stem.problem, stem.precision, stem.out_dtype) / 4.1e12 < stem.predicted


@pytest.mark.parametrize(
    ("name", "precision"),
    [(LAST, "bf16"), (LAST, "fp32"), ("2x128x128x128x32>3x1x1x1", "bf16"), (STEM, "fp32")],
)
def test_layers_that_it_is_for(name: str, precision: str) -> None:
    """It is predicted to be faster than all else, by a sixth at least."""
    every = candidates(unnamed("backward_filter", LAYERS[name], precision, H200)).plans
    others = min(p.predicted for p in every if not isinstance(p, WgradThinPlan))
    picked = plan(unnamed("backward_filter", LAYERS[name], precision, H200))
    assert isinstance(picked, WgradThinPlan)
    assert picked.predicted < 5 / 6 * others


def test_sums_are_short() -> None:
    """The longest chain of networks' layers is no longer than a thread of columns has; an error is
    below that of one sum."""
    for name in (LAST, STEM, "32x520x520x3>64x7x7s2p3"):
        p = fastest("fp32", name)
        (found,) = p.sums
        chain = math.ceil(p.chunks / p.shares) * p.config.positions
        assert found.products <= chain < 10_000
        assert found.products * p.shares * p.config.slots == pytest.approx(p.positions)
        assert found.count < 200
        one = replace(p, shares=1)
        assert predicted_rms(p) < predicted_rms(one)


def test_a_workspace_limit_is_kept() -> None:
    request = unnamed("backward_filter", LAYERS[STEM], "fp32", H200)
    for limit in (0, 1 << 20):
        for p in wgrad_thin.plans(replace(request, workspace_limit=limit)):
            assert p.workspace <= limit
    assert fastest("fp32", STEM).workspace > 1 << 20


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_refused(precision: str) -> None:
    problem = PROBLEMS["stem"]
    assert offered(problem, precision, algorithm=parse_algorithm("winrs")) == []
    for config in (
        Config("x", 1, 1, 2, 8, 1),  # 24 channels of dy are not few
        Config("dy", 24, 3, 2, 8, 1),  # three channels are no vector
        Config("dy", 24, 1, 2, 8, 20),  # 480 threads
        Config("dy", 24, 1, 8, 113, 1),  # sums of a thread
    ):
        with pytest.raises(ValueError, match="does not serve 1 group of 3 channels and 24 output"):
            offered(problem, precision, config=config)
    with pytest.raises(ValueError, match="need something to sum"):
        offered(layer((0, 5, 5, 3), 8, (3, 3)), precision)


def test_compute_capability_8_runs_them() -> None:
    for name in (STEM, LAST):
        request = Request(LAYERS[name], "backward_filter", datasheet("a100"), None, "fp32")
        assert plan(request).kernel == WgradThinPlan.kernel


def test_a_plan_says_what_it_is() -> None:
    found = fastest("bf16", LAST)
    text = str(found)
    assert "kernel     thin bf16, nothing transformed" in text
    assert "block      64 channels of x × 2 columns" in text
    assert "policies   x 8x8 positions=" in text
    assert f"predicted  {1e6 * found.predicted:.1f} µs on NVIDIA H200" in text
    assert found.source().count("winolab_wgrad_thin") == 2
