"""Where kernels of thin layers are planned and picked, what their plans say, what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.gpu.families.thin.cases import DIRECTIONS, PRECISIONS, PROBLEMS, layer, offered
from winolab.algorithm import gamma
from winolab.bench.contenders import unnamed
from winolab.bench.networks import distinct
from winolab.device import H100, datasheet
from winolab.gpu.families.thin import cost
from winolab.gpu.families.thin import plan as thin
from winolab.gpu.families.thin.config import Config
from winolab.gpu.families.thin.plan import ThinPlan
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Plan, Request

RESULTS = Path(__file__).parents[4] / "experiments" / "results"


LAYERS = {str(found): found.problem for found in distinct()}  # of networks
H200 = datasheet("h200")


@cache
def fastest(direction: str, precision: str, name: str) -> ThinPlan:
    """What the family offers a layer of networks on an H200, the fastest predicted."""
    request = unnamed(direction, LAYERS[name], precision, H200)
    return min(thin.plans(request), key=lambda p: p.predicted)


def picked(direction: str, precision: str, name: str) -> Plan:
    return plan(unnamed(direction, LAYERS[name], precision, H200))


def test_both_sides_may_be_thin() -> None:
    def kinds(problem, direction: str) -> set[str]:
        return {p.config.kind for p in offered(problem, direction, "fp16")}

    assert kinds(PROBLEMS["1x1 to 2"], "forward") == {"outputs"}
    assert kinds(PROBLEMS["1x1 to 2"], "backward_data") == {"channels"}
    assert kinds(PROBLEMS["both few"], "forward") == {"outputs", "channels"}
    assert kinds(layer((1, 8, 8, 64), 64, (3, 3)), "forward") == set()
    assert kinds(layer((1, 8, 8, 6), 6, (3, 3), groups=2), "forward") == set()


def test_threads_and_registers_fit() -> None:
    for name, problem in PROBLEMS.items():
        for direction in DIRECTIONS:
            for p in offered(problem, direction, "fp32"):
                assert p.config.registers(p.correlation) <= 128, name
                assert p.shared_memory <= 96 << 10
                assert p.workers * -(-p.work_tiles // p.workers) >= p.work_tiles
                assert p.grid <= p.blocks_m * p.work_tiles
                assert 0 < p.predicted < 1e-3


def test_memory_binds_what_is_thin_enough() -> None:
    """Floors are the data's; a filter of many taps takes its products' time."""
    for found in (fastest("forward", "bf16", "2x128x128x128x32>3x1x1x1"),
                  fastest("backward_data", "bf16", "2x128x128x128x32>3x1x1x1")):  # fmt: skip
        assert cost.data(found) == 2 * 2 * 128**3 * 35 + 2 * 96
        copied = cost.data(found) / (2.85e12 * H200.memory_rate)
        assert copied < found.predicted < 1.7 * copied
    many = fastest("forward", "bf16", "1x520x520x3>64x7x7s2p3")
    products = math.prod(many.correlation.output) * 64 * 147 / (
        many.device.lanes * many.device.multiprocessors * many.device.clock
    )  # fmt: skip
    assert many.predicted > products > 2 * cost.data(many) / 4.1e12


def test_default_picks_change_where_rows_bear_it_out() -> None:
    """What was picked of layers that were measured took more than twice what is predicted."""
    changed = 0
    for direction in DIRECTIONS:
        for line in (RESULTS / f"networks_{direction}.jsonl").read_text().splitlines():
            row = json.loads(line)
            if not row.get("chosen") or row["layer"] not in LAYERS:
                continue
            request = unnamed(direction, LAYERS[row["layer"]], row["precision"], H200)
            if any(True for _ in thin.plans(request)) and isinstance(
                found := plan(request), ThinPlan
            ):
                changed += 1
                assert row["kernel"] == "thin" or row["us"] > 2e6 * found.predicted, row["layer"]
    assert changed >= 6


def test_what_no_gpu_has_timed_is_picked_by_its_margin() -> None:
    name = "2x128x128x128x32>3x1x1x1"
    assert picked("backward_data", "bf16", name).kernel == "thin"
    name = "32x512x512x64>2x1x1"
    other, own = picked("forward", "fp16", name), fastest("forward", "fp16", name)
    assert other.kernel != "thin"
    assert own.predicted < other.predicted < own.margin * own.predicted
    problem = own.problem
    choice = candidates(unnamed("forward", problem, "fp16", H200), near=True)
    assert "no GPU has timed" in choice.why
    assert plan(Request(problem, "forward", H100, None, "fp16", config=own.config)).kernel == "thin"


def test_it_is_picked_where_a_limit_leaves_only_what_is_slower_by_its_margin() -> None:
    """The faster direct products take a workspace."""
    problem = layer((8, 1, 14, 1000), 7, (1, 1))
    free, none = (
        plan(Request(problem, "forward", H200, None, "fp32", workspace_limit=limit))
        for limit in (None, 0)
    )
    assert free.kernel != "thin"
    assert free.workspace > 0
    assert none.kernel == "thin"


def test_compute_capability_8_runs_them_by_name() -> None:
    """No rows there say what others take."""
    problem = PROBLEMS["3 to 32"]
    request = Request(problem, "backward_data", datasheet("a100"), None, "bf16")
    assert plan(request).kernel != "thin"
    (found, *_) = thin.plans(request)
    assert plan(replace(request, config=found.config)).kernel == "thin"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_refused(precision: str) -> None:
    problem = PROBLEMS["stem"]
    assert offered(problem, "forward", precision, algorithm=gamma(6, 4, 3)) == []
    with pytest.raises(ValueError, match="does not serve 1 group of 3 channels and 24 output"):
        offered(problem, "forward", precision, config=Config("outputs", 8, 1, 2, 3))
    old = Request(problem, "forward", datasheet("v100"), None, precision)
    with pytest.raises(ValueError, match=r"compute capability 7\.0; the kernels need 8\.0"):
        list(thin.plans(old))
    with pytest.raises(ValueError, match="need something to sum"):
        offered(layer((0, 5, 5, 3), 8, (3, 3)), "forward", precision)


def test_a_plan_says_what_it_is() -> None:
    text = str(fastest("backward_data", "bf16", "2x128x128x128x32>3x1x1x1"))
    assert "kernel     thin bf16, nothing transformed" in text
    assert "policies   channels 4x8 positions=" in text
    assert "predicted  107.4 µs on NVIDIA H200" in text
