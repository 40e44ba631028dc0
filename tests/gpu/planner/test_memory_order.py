"""Which plan serves maps that lie channels-first: the pick between copies, or planes in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu.support.pretended import Array
from winolab.device import datasheet
from winolab.gpu import machine
from winolab.gpu.params import MOST_BLOCKS
from winolab.gpu.planner import planner
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.memory_order import copies, product_of_planes
from winolab.gpu.planner.rates import copying
from winolab.gpu.planner.request import DTYPES, Request
from winolab.gpu.runtime import conv
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.arrays import Described
from winolab.gpu.runtime.planned import PlannedCall
from winolab.gpu.runtime.resolve import resolve
from winolab.options import ConvOptions
from winolab.problem import Problem, shapes

H200 = datasheet("h200")


@pytest.fixture
def with_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that has it."""
    monkeypatch.setattr(machine, "has_cublaslt", lambda: True)
    planner.plan.cache_clear()
    yield
    planner.plan.cache_clear()


def found(
    direction: str, problem: Problem, numbers: str, *, first: bool = True, **how: Any
) -> PlannedCall:
    """What a call plans whose maps lie channels-first, or last, on an H200."""
    a, b, _ = shapes(direction, problem)
    fresh = ArrayLayout.fresh(a), ArrayLayout.fresh(b)
    lies, second = (v.channels_first() if first else v for v in fresh)
    x, w = (
        Described(each.shape, each.strides, DTYPES[numbers], 0, True)
        for each in (lies, second if direction == "backward_filter" else ArrayLayout.fresh(b))
    )
    options = ConvOptions(**how).checked()
    return PlannedCall.of(resolve(direction, problem, options, x, w, None, meant=H200))


def picked(made: PlannedCall) -> tuple[str, list[str]]:
    """Which kernel, and what is copied."""
    assert made.plan
    return made.plan.kernel, list(made.copies)


OWN = "Γ1(1,1)"
WIDE = Problem.of((32, 56, 56, 64), (256, 1, 1, 64))
DEEP = Problem.of((32, 28, 28, 512), (128, 1, 1, 512))
LATE = Problem.of((32, 8, 8, 2048), (512, 1, 1, 2048))


def test_planes_are_read_in_place_where_copies_would_take_longer(with_library) -> None:
    """Picks would be between copies; where channels lie last they stay."""
    for direction in CORRELATIONS:
        for problem, precision in ((WIDE, "fp16"), (DEEP, "fp16"), (WIDE, "bf16"), (WIDE, "fp32")):
            assert picked(found(direction, problem, precision)) == ("cuBLASLt", [])
            kernel, copies = picked(found(direction, problem, precision, first=False))
            assert not copies
            assert kernel == OWN or precision != "fp32"
        assert picked(found(direction, DEEP, "fp32")) == (OWN, ["a", "out"])
    for precision in ("fp16", "fp32"):
        made = found("backward_filter", WIDE, precision)
        assert picked(made) == ("cuBLASLt", [])
        assert made.end == 32 * 64 * 256 * 4  # parts, and no workspace of the library's
    assert picked(found("backward_filter", LATE, "fp16"))[1] == ["a", "b"]


def test_few_pixels_an_image_are_copied(with_library) -> None:
    """A product of four pixels fills no block: copies take less time, unless the product is what
    was named."""
    problem = Problem.of((512, 2, 2, 256), (256, 1, 1, 256))
    made = found("forward", problem, "fp32")
    assert list(made.copies) == ["a", "out"]
    named = found("forward", problem, "fp32", algorithm="direct;variant=cublaslt")
    assert not named.copies
    many = Problem.of((MOST_BLOCKS + 1, 2, 2, 4), (4, 1, 1, 4))
    assert found("forward", many, "fp32", algorithm="direct;variant=cublaslt").copies


def test_what_says_how_is_what_is_taken(with_library) -> None:
    asked: tuple[dict[str, Any], ...] = {"algorithm": "direct"}, {"tolerance": 1e-2}
    for how in asked:
        made = found("forward", WIDE, "fp32", **how)
        assert list(made.copies) == ["a", "out"], how
    assert list(found("forward", WIDE, "fp32", precision="fp32_split").copies) == ["a", "out"]
    assert not found("forward", WIDE, "fp32", workspace_limit=0).copies


def test_without_the_library_picks_stay(with_library, monkeypatch) -> None:
    monkeypatch.setattr(machine, "has_cublaslt", lambda: False)
    monkeypatch.setattr(machine, "driver_cuda", lambda: (13, 0))
    planner.plan.cache_clear()
    assert picked(found("forward", WIDE, "fp16")) == (OWN, ["a", "out"])


def test_no_filter_is_kept_for_planes(with_library, library, monkeypatch) -> None:
    """Which are read beside the filter as it is; for rows it is transformed once."""
    monkeypatch.setattr(conv, "transform", lambda *of, smallest: "transformed")
    x, w = (np.zeros(shape, np.float32) for shape in (WIDE.x_shape, WIDE.w_shape))
    asked = "forward", WIDE, Array(w), ConvOptions().checked()
    planes = np.moveaxis(np.moveaxis(x, -1, 1).copy(), 1, -1)
    assert conv.transform_if_used(*asked) == "transformed"
    assert conv.transform_if_used(*asked, Array(x)) == "transformed"
    assert conv.transform_if_used(*asked, Array(planes)) is None


def test_copies_count_with_launches_and_both_ways() -> None:
    assert copies(H200, []) == 0
    once = MODEL.device.launch + copying(H200, 2e6)
    assert copies(H200, [10**6, 10**6]) == pytest.approx(2 * once)


def test_the_faster_of_both_is_taken(with_library) -> None:
    """By what copies take, of maps that are planes."""
    request = Request(DEEP, "forward", H200, None, "fp32")
    chosen = planner.plan(request)
    product = planner.plan(replace(offered_request(request), planes=True))
    margin = product.predicted - chosen.predicted
    assert margin > 0
    for factor, kernel in ((0.9, chosen.kernel), (1.1, "cuBLASLt")):
        rate = (copying(H200, 1 << 40) / (1 << 40)) * 2
        enough = int((factor * margin - MODEL.device.launch) / rate)
        assert enough > 0
        taken = product_of_planes(request, chosen, planner.plan, lambda step, n=enough: [n])
        assert taken.kernel == kernel
    assert product_of_planes(request, chosen, planner.plan, lambda step: []) is chosen


def offered_request(request: Request) -> Request:
    """The same by the product's name."""
    return replace(request, algorithm=winolab.direct(variant="cublaslt"))
