"""Direct products whose copies walk positions: what is planned, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.device import H100, datasheet
from winolab.gpu.families.clusters import MOST_SHARED
from winolab.gpu.families.im2col.config import CONFIGS, SHAPES, SPLITS, Config
from winolab.gpu.families.im2col.plan import plans
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request

PROBLEM = Problem.of((2, 9, 9, 64), (64, 3, 3, 64), padding=1)
FORTH, BACK = "forward", "backward_data"


def request(problem: Problem = PROBLEM, direction: str = FORTH, **options: Any) -> Request:
    return Request(problem, direction, H100, None, "fp16", **options)


def test_every_shape_has_as_many_stages_as_fit() -> None:
    assert {(v.bn, v.bm, v.blocks) for v in CONFIGS} == set(SHAPES)
    assert {v.split_k for v in CONFIGS} <= set(SPLITS)
    for v in CONFIGS:
        assert v.runs
        assert v.blocks * v.shared_memory <= MOST_SHARED
        more = replace(v, stages=v.stages + 1)
        assert v.stages == 8 or not more.runs


def test_parts_of_a_sum_have_a_step_each() -> None:
    few = Problem.of((2, 9, 9, 64), (64, 1, 2, 64))
    assert {p.config.split_k for p in plans(request(few))} == {1, 2}
    (named,) = plans(request(few, config=Config(64, 64, 6, 8)))
    assert named.config.split_k == 8  # six have nothing to sum


def test_blocks_of_many_rounds_are_left_to_persistent_ones() -> None:
    many = Problem.of((64, 56, 56, 64), (64, 3, 3, 64), padding=1)
    assert not list(plans(request(many)))
    assert list(plans(request(many, config=Config(64, 64, 6))))


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((2, 9, 9, 12), (64, 3, 3, 12)), {}, "multiples of 8 channels, not 12 and 64"),
        (((2, 9, 9, 64), (20, 3, 3, 64)), {}, "multiples of 8 channels, not 64 and 20"),
        (((2, 40, 40, 8), (8, 1, 1, 8)), {"stride": 9}, "strides of up to 8, not 9"),
        (((2, 9, 9, 64), (64, 3, 3, 32)), {"groups": 2}, "over multiples of 64 channels, not 32"),
        (((1, 9, 40, 8), (8, 1, 9, 8)), {"dilation": (1, 32), "padding": (0, 128)}, "255 apart"),
        (((1, 9, 9, 8), (8, 1, 1, 8)), {"padding": 129}, "-128 to 127 places .* not -129"),
        (((1, 9, 9, 9, 8), (8, 1, 1, 1, 8)), {"padding": 17}, "-16 to 15 places .* not -17"),
        (((1, 300, 8), (8, 200, 8)), {}, "-128 to 127 places .* not -199"),
        (((0, 9, 9, 8), (8, 1, 1, 8)), {}, "something to sum"),
    ],
)
def test_what_maps_do_not_reach_is_refused_in_a_line(shapes, options, message) -> None:
    problem = Problem.of(*shapes, **options)
    with pytest.raises(ValueError, match=message) as error:
        list(plans(request(problem)))
    assert "\n" not in str(error.value)
    if 0 not in problem.y_shape:
        assert plan(request(problem)).kernel  # others serve it


def test_what_else_is_refused() -> None:
    strided = Problem.of((2, 9, 9, 64), (64, 3, 3, 64), stride=2)
    for asked, message in (
        (replace(request(), device=datasheet("a100")), "need wgmma"),
        (replace(request(), algorithm=parse_algorithm("gamma:8:6:3")), "do not compute"),
        (request(aligned=False), "by position need pixels that lie 16-byte aligned: copy"),
        (request(strided, BACK), "backward data of unit stride, not 2"),
        (request(config=Config(96, 64, 4)), "blocks have 64, 128, 192 or 256 positions"),
        (request(config=Config(256, 256, 4)), "blocks have 64, 128, 192 or 256 positions"),
        (request(config=Config(128, 128, 7, 4)), "blocks have 64, 128, 192 or 256 positions"),
        (request(direction=BACK, config=Config(64, 32, 4)), "backward data by 64"),
    ):
        with pytest.raises(ValueError, match=message):
            list(plans(asked))


def test_a_plan_says_what_it_is() -> None:
    text = str(next(p for p in plans(request()) if p.config.split_k == 4))
    assert "positions, stages=" in text
    assert "4 of a cluster" in text
    assert "no workspace" in text
