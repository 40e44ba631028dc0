"""What the fused kernel is planned for, and what it says of what it does not serve."""

from __future__ import annotations

import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.device import H100, datasheet
from winolab.gpu.families.fused2d.config import Config, narrow
from winolab.gpu.families.fused2d.cost import spent
from winolab.gpu.families.fused2d.plan import Fused2dPlan, plans
from winolab.gpu.planner import planner
from winolab.gpu.planner.request import Request

LAYER = Problem.of((64, 56, 56, 64), (64, 3, 3, 64), padding=1)


def asked(problem: Problem = LAYER, algorithm: str | None = "winograd:2x2:3x3", **options):
    algorithm_ = parse_algorithm(algorithm) if algorithm else None
    return Request(
        problem, "forward", options.pop("device", H100), algorithm_, "fp32_ffma", **options
    )


def test_a_plan_adds_up() -> None:
    for p in plans(asked()):
        assert sum(spent(p).values()) == pytest.approx(p.predicted)
        assert p.config.shared_memory <= H100.shared_memory
        assert p.work_tiles == 64 * 28 * 28 // 32 * 64 // p.config.bm
        assert p.workspace == (0 if p.config.fused else 4 * 16 * 64 * 64)
        assert str(p.config) in str(p)


def test_the_planner_serves_the_algorithm_and_its_configs() -> None:
    assert isinstance(planner.plan(asked()), Fused2dPlan)
    for config in (narrow(), Config(fused=True, layout="yan"), Config(images=2, rows=4, columns=4)):
        p = planner.plan(asked(config=config))
        assert isinstance(p, Fused2dPlan)
        assert (p.config.bm, p.config.fused, p.config.layout, p.config.images) == (
            config.bm,
            config.fused,
            config.layout,
            config.images,
        )
    assert planner.plan(asked(workspace_limit=0)).workspace == 0


def test_it_serves_what_it_can_alone() -> None:
    for x, w in (
        ((2, 9, 9, 4), (4, 5, 5, 4)),
        ((2, 9, 4), (4, 3, 4)),
        ((2, 5, 9, 9, 4), (4, 3, 3, 3, 4)),
    ):
        with pytest.raises(ValueError, match="two dimensions and 3 × 3 taps"):
            list(plans(asked(Problem.of(x, w), None)))
    with pytest.raises(ValueError, match="winograd:2x2:3x3"):
        planner.plan(asked(algorithm="winograd:4x4:3x3"))
    with pytest.raises(ValueError, match=r"9\.0 or later"):
        list(plans(asked(device=datasheet("a100"))))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bm": 48}, "64 or 32 output channels"),
        ({"order": "hwcn"}, "expected one of nhwc, nchw, chwn"),
        ({"images": 2, "rows": 2, "columns": 2}, "a block has 32"),
        ({"rows": 32}, "a block has 32"),
        ({"layout": "best"}, "no layout 'best'"),
        ({"buffers": 3}, "expected 1 or 2"),
        ({"u_stages": 1}, "expected 2 or more"),
    ],
)
def test_policies_that_there_are_not(fields, message) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**fields)


def test_text_names_what_is_not_usual() -> None:
    assert str(Config()) == "64x32x8 channels stages=3+2"
    text = str(narrow(layout="yan", fused=True, order="chwn", images=32, rows=1, columns=1))
    assert text == "32x32x8 yan stages=3+2 fused=1 order=chwn images=32 rows=1 columns=1 teams=2"
