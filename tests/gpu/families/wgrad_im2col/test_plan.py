"""Direct filter gradients whose copies walk positions: what is planned, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.device import H100, datasheet
from winolab.gpu.families import im2col_maps
from winolab.gpu.families.clusters import MOST_SHARED
from winolab.gpu.families.wgrad_im2col.config import CONFIGS, SHAPES, SPLITS, Config
from winolab.gpu.families.wgrad_im2col.plan import plans
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request

PROBLEM = Problem.of((2, 9, 9, 64), (64, 3, 3, 64), padding=1)


def request(problem: Problem = PROBLEM, **options: Any) -> Request:
    return Request(problem, "backward_filter", H100, None, "fp16", **options)


def test_every_shape_has_as_many_stages_as_fit() -> None:
    assert {(v.bo, v.bi, v.blocks) for v in CONFIGS} == set(SHAPES)
    assert {v.split_k for v in CONFIGS} == set(SPLITS)
    for v in CONFIGS:
        assert v.runs
        assert v.blocks * v.shared_memory <= MOST_SHARED
        more = replace(v, stages=v.stages + 1)
        assert v.stages == 8 or not more.runs


def test_parts_of_the_positions_have_a_step_each() -> None:
    """162 positions are three steps."""
    assert {p.config.split_k for p in plans(request())} == {1, 2, 3}
    (named,) = plans(request(config=Config(64, 64, 6, 8)))
    assert named.config.split_k == 8  # five have nothing to sum


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((2, 9, 9, 12), (64, 3, 3, 12)), {}, "multiples of 8 channels, not 12 and 64"),
        (((2, 9, 9, 64), (20, 3, 3, 64)), {}, "multiples of 8 channels, not 64 and 20"),
        (((2, 40, 40, 8), (8, 1, 1, 8)), {"stride": 9}, "strides of up to 8, not 9"),
        (((1, 9, 40, 8), (8, 1, 9, 8)), {"dilation": (1, 32), "padding": (0, 128)}, "255 apart"),
        (((1, 9, 9, 8), (8, 1, 1, 8)), {"padding": 129}, "-128 to 127 places .* not -129"),
        (((1, 9, 9, 9, 8), (8, 1, 1, 1, 8)), {"padding": 17}, "-16 to 15 places .* not -17"),
        (((1, 9, 9, 40, 8), (8, 1, 1, 34, 8)), {}, "-16 to 15 places .* not -33"),
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
    for asked, message in (
        (replace(request(), device=datasheet("a100")), "need wgmma"),
        (replace(request(), algorithm=parse_algorithm("omega:8:6:3")), "do not compute"),
        (request(aligned=False), "16-byte aligned"),
        (request(config=Config(96, 64, 4)), "blocks have 64, 128, 192 or 256 output"),
        (request(config=Config(256, 256, 4)), "blocks have 64, 128, 192 or 256 output"),
        (request(config=Config(128, 128, 7, 4)), "blocks have 64, 128, 192 or 256 output"),
    ):
        with pytest.raises(ValueError, match=message):
            list(plans(asked))


def test_dimensions_are_four_without_a_depth() -> None:
    """They reach farther."""
    for problem, rank in (
        (PROBLEM, 4),
        (Problem.of((2, 50, 8), (8, 3, 8)), 4),
        (Problem.of((2, 3, 9, 9, 8), (8, 1, 3, 3, 8)), 5),
        (Problem.of((2, 1, 9, 9, 8), (8, 1, 3, 3, 8)), 4),
        (Problem.of((2, 1, 9, 9, 8), (8, 1, 3, 3, 8), padding=(1, 0, 0)), 5),
    ):
        assert {p.rank for p in plans(request(problem))} == {rank}


def test_the_window_ends_with_the_last_output() -> None:
    """Rows and columns of x behind the last that a tap meets are no positions."""
    problem = Problem.of((1, 10, 11, 8), (8, 3, 2, 8), stride=(3, 2), padding=(1, 0))
    found = next(iter(plans(request(problem))))
    (left, up, _), (right, down, _) = im2col_maps.corners(found.gradient)
    assert (left, up) == (0, -1)
    for size, stride, low, high, outputs in ((11, 2, left, right, 5), (10, 3, up, down, 4)):
        assert len(range(low, size - 1 + high + 1, stride)) == outputs


def test_a_plan_says_what_it_is() -> None:
    text = str(next(p for p in plans(request()) if p.config.split_k == 3))
    assert "positions, stages=" in text
    assert "3 of a cluster" in text
    assert "0 B workspace" in text
