"""Where patches are planned and picked, what their plans say, what is refused."""

from __future__ import annotations

import pytest

from tests.gpu.families.patches.cases import DIRECTIONS, PROBLEMS, layer, offered, served
from winolab.algorithm import gamma
from winolab.bench.contenders import unnamed
from winolab.bench.networks import distinct
from winolab.device import datasheet
from winolab.gpu.families.patches import cost
from winolab.gpu.families.patches.config import Config
from winolab.gpu.families.patches.plan import PatchesPlan
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Request

LAYERS = {str(found): found.problem for found in distinct()}  # of networks
H200 = datasheet("h200")
STEMS = (
    "32x224x224x3>64x7x7s2p3", "32x224x224x3>64x3x3p1", "1x128x128x128x1>32x3x3x3p1",
    "32x160000x1>512x10s5", "32x224x224x3>96x4x4s4",
)  # fmt: skip


@pytest.mark.parametrize("name", STEMS)
def test_stems_of_networks_are_patches(name: str) -> None:
    """Memory binds them: no more than three times what copying takes is predicted."""
    found = plan(unnamed("forward", LAYERS[name], "fp16", H200))
    assert isinstance(found, PatchesPlan)
    assert cost.data(found) / 4.2e12 < found.predicted < 3 * cost.data(found) / 4.2e12


def test_what_is_served() -> None:
    """Backward data of unit strides alone; odd channels without dilation along rows."""
    forward, data = served("forward"), served("backward_data")
    assert {"stem", "rows of 8", "2 of dilation", "common factors", "48, 1x1"} <= {*forward}
    assert {"1x1 to 2", "3 to 32", "8 of 72"} <= {*data}
    assert not {"odd", "both few", "3 to 32", "16 of 21"} & {*forward}
    assert not {"stem", "patches", "stride beyond the filter"} & {*data}
    assert offered(layer((1, 9, 9, 3), 8, (3, 3), dilation=2), "forward", "fp16") == []
    assert offered(layer((1, 9, 9, 6), 16, (3, 3), groups=2), "forward", "fp16") == []


def test_blocks_fit() -> None:
    for direction in DIRECTIONS:
        for name in served(direction):
            for p in offered(PROBLEMS[name], direction, "bf16"):
                assert p.config.threads * p.config.registers * p.config.blocks <= 65536, name
                assert p.shared_memory * min(2, p.config.blocks) <= 227 << 10
                assert p.workers * -(-p.patches.work_tiles // p.workers) >= p.patches.work_tiles
                assert 0 < p.predicted < 1e-3


def test_compute_capability_8_runs_them() -> None:
    request = Request(PROBLEMS["stem"], "forward", datasheet("a100"), None, "bf16")
    assert any(isinstance(p, PatchesPlan) for p in candidates(request).plans)


def test_what_is_refused() -> None:
    problem, config = PROBLEMS["stem"], Config(8, 8, 32)
    assert offered(problem, "forward", "fp16", algorithm=gamma(6, 4, 3)) == []
    with pytest.raises(ValueError, match="not 1 group of 13 channels and 5 output channels"):
        offered(PROBLEMS["odd"], "forward", "fp16", config=config)
    with pytest.raises(ValueError, match=r"not 1 group of 24 channels .* with stride \(2, 2\)"):
        offered(problem, "backward_data", "fp16", config=config)
    for wrong in (Config(8, 8, 48), Config(3, 8, 32), Config(8, 16, 96, 2), Config(0, 8, 32)):
        with pytest.raises(ValueError, match=f"no kernel of {wrong}; name one"):
            offered(problem, "forward", "fp16", config=wrong)
    with pytest.raises(ValueError, match="need something to sum"):
        offered(layer((0, 5, 5, 3), 8, (3, 3)), "forward", "fp16")
    far = layer((1, 9, 9000, 4), 8, (1, 2), dilation=8000)
    with pytest.raises(ValueError, match="need 102400 B of shared memory at most"):
        offered(far, "forward", "fp16")


def test_a_plan_says_what_it_is() -> None:
    found = plan(unnamed("forward", LAYERS[STEMS[0]], "bf16", H200))
    text = str(found)
    assert "kernel     patches bf16, nothing transformed" in text
    assert f"predicted  {1e6 * found.predicted:.1f} µs on NVIDIA H200" in text
