"""Images whose bits no batch changes: on the CPU, by plan and by what decides it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import on_gpu, operands
from winolab.algorithm import Direct, Problem, parse_algorithm
from winolab.arguments.variants import CUBLASLT
from winolab.device import H100, datasheet
from winolab.gpu.families.im2col.config import Config
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.recast.images import (
    BATCHES,
    images_at_once,
    in_one_launch,
    of_images,
    order,
)
from winolab.gpu.planner.request import Plan, Request

H200 = datasheet("h200")
PARTS = Config(64, 64, 4, 2, 2, tf32=1)  # of TF32
# Layers of every family that computes correlations; the batch is the first size.
LAYERS = {
    "3×3": Problem.of((3, 9, 10, 16), (16, 3, 3, 16), padding=1),
    "strided": Problem.of((3, 9, 8, 16), (24, 3, 3, 16), padding=1, stride=2),
    "1×1": Problem.of((3, 5, 5, 64), (32, 1, 1, 64)),
    "depthwise": Problem.of((3, 9, 8, 16), (16, 3, 3, 1), padding=1, groups=16),
    "grouped": Problem.of((3, 9, 8, 32), (32, 3, 3, 8), padding=1, groups=4),
    "stem": Problem.of((3, 12, 13, 3), (16, 3, 3, 3), padding=1, stride=2),
}
CASES = [
    ("3×3", "fp32", "forward"), ("3×3", "fp16", "backward_data"), ("strided", "fp32", "forward"),
    ("1×1", "bf16", "forward"), ("depthwise", "fp32", "forward"), ("grouped", "fp16", "forward"),
    ("stem", "fp16", "forward"), ("stem", "fp32", "backward_data"), ("1×1", "fp32", "forward"),
]  # fmt: skip


def cut(name: str, precision: str, direction: str) -> tuple[Plan, Plan]:
    """The plans of all images and of one."""
    request = Request(LAYERS[name], direction, H200, None, precision)
    images, asked = images_at_once(request, plan)
    assert images == request.problem.batch
    return plan(asked), plan(of_images(asked, 1))


def check(name: str, precision: str, direction: str, execute) -> None:
    """The result of all images has the bits of each alone."""
    every, one = cut(name, precision, direction)
    assert order(every) == order(one)
    a, b = operands(every.problem, direction, precision)
    y = execute(every, a, b)
    for i in range(len(a)):
        alone = execute(one, a[i : i + 1].copy(), b)
        assert np.isfinite(alone.astype(float)).all()
        assert np.array_equal(alone, y[i : i + 1])


@pytest.mark.parametrize(("name", "precision", "direction"), CASES)
def test_an_image_has_its_bits_in_every_batch(name, precision, direction) -> None:
    check(name, precision, direction, lambda p, a, b: hosted.execute(p, a, b, dtype=p.out_dtype))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_an_image_that_is_not_finite_changes_no_bit_of_others(name: str, direction: str) -> None:
    """TF32 parts did: a block with such a sum is summed again on FFMA units."""
    every, _ = cut(name, "fp32", direction)
    a, b = operands(every.problem, direction, "fp32")
    y = hosted.execute(every, a, b)
    a[1] = np.nan
    assert np.array_equal(hosted.execute(every, a, b)[::2], y[::2])


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "precision", "direction"), CASES)
def test_an_image_has_its_bits_in_every_batch_on_a_gpu(name, precision, direction) -> None:
    check(name, precision, direction, on_gpu)


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_images_by_parts_that_are_summed_alone_are_one_launch(direction: str) -> None:
    """A sum of TF32's parts by position that is not finite is added up again by itself."""
    request = Request(LAYERS["1×1"], direction, H200, None, "fp32_split", config=PARTS)
    images, asked = images_at_once(request, plan)
    every, one = plan(asked), plan(of_images(asked, 1))
    assert (images, order(every)) == (3, order(one))
    a, b = operands(every.problem, direction, "fp32")
    y = hosted.execute(every, a, b)
    a[1, 2, 2] = np.inf
    again = hosted.execute(every, a, b)
    assert not np.isfinite(again[1, 2, 2]).all()
    for i in (0, 2):
        assert np.array_equal(again[i], y[i])
        assert np.array_equal(hosted.execute(one, a[i : i + 1].copy(), b)[0], y[i])
    near = np.ones(y.shape[1:3], bool)
    near[2, 2] = False
    assert np.array_equal(again[1][near], y[1][near])


def test_what_looks_at_all_images_is_taken_for_each_alone() -> None:
    """Scales and checks of split products do, and a library's order follows the rows."""
    problem = LAYERS["3×3"]
    asked = Request(problem, "forward", H200, parse_algorithm("gamma:6:4:3"), "fp32_split")
    assert plan(asked).fallback
    assert images_at_once(asked, plan) == (0, asked)
    product = Request(LAYERS["1×1"], "forward", H200, Direct(variant=CUBLASLT), "fp16")
    assert not in_one_launch(plan(product))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_of_all_ways_the_least_time_is_taken(precision) -> None:
    """Over batches of 1, 8 and 32: no more than images alone, whose plan may be another's."""
    for problem in (
        Problem.of((32, 14, 14, 256), (256, 3, 3, 256), padding=1),
        Problem.of((32, 224, 224, 64), (64, 3, 3, 64), padding=1),
    ):
        request = Request(problem, "forward", H100, None, precision)
        found = []
        for batch in BATCHES:
            images, asked = images_at_once(of_images(request, batch), plan)
            assert images in (0, batch)
            calls = 1 if images else batch
            found.append(calls * plan(of_images(asked, images or 1)).predicted)
        alone = plan(of_images(request, 1)).predicted
        assert np.prod(found) <= np.prod([batch * alone for batch in BATCHES]) * (1 + 1e-12)


def test_a_batch_that_no_launch_has_is_halved() -> None:
    def few(request: Request) -> Plan:
        if request.problem.batch > 3:
            raise ValueError("more than three")
        return plan(request)

    request = of_images(Request(LAYERS["3×3"], "forward", H200, None, "fp16"), 9)
    images, asked = images_at_once(request, few)
    assert (images, asked.problem.batch) == (3, 3)


def test_what_is_named_stays() -> None:
    """Algorithm, precision and the limit of workspace."""
    named = parse_algorithm("winograd:2x2:3x3")
    for precision, limit in (("fp32_ffma", None), ("fp16", 1 << 22)):
        request = Request(LAYERS["3×3"], "forward", H200, named, precision, workspace_limit=limit)
        images, asked = images_at_once(request, plan)
        assert (images, asked.algorithm) == (3, named)
        assert (asked.precision, asked.workspace_limit) == (precision, limit)
    with pytest.raises(ValueError, match="dwm:3:2 runs on a GPU in pieces"):
        images_at_once(replace(request, algorithm=parse_algorithm("dwm:3:2")), plan)
