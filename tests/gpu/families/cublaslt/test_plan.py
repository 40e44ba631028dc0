"""What is planned for cuBLASLt, by name and by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import winolab
from tests.gpu.families.cublaslt.cases import (
    DIRECTIONS,
    PRECISIONS,
    PROBLEMS,
    offered,
    packed,
)
from winolab.algorithm import Problem, direct, parse_algorithm
from winolab.device import H100
from winolab.gpu import machine
from winolab.gpu.families.cublaslt import cost
from winolab.gpu.families.cublaslt.config import USUAL, Config
from winolab.gpu.families.cublaslt.launch import parameters
from winolab.gpu.families.cublaslt.plan import NAMED, CublasltPlan
from winolab.gpu.params import View
from winolab.gpu.planner import planner
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.planner import USUAL_LEAST, candidates, plan, usual_limit
from winolab.gpu.planner.request import Request
from winolab.ref.arithmetic.simulated import arithmetic

LAYER = Problem.of((32, 28, 28, 256), (128, 1, 1, 256))


def fits(request: Request) -> list[CublasltPlan]:
    return [p for p in candidates(request).plans if isinstance(p, CublasltPlan)]


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with the library."""
    monkeypatch.setattr(machine, "has_cublaslt", lambda: True)
    planner.plan.cache_clear()
    yield
    planner.plan.cache_clear()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_by_name_it_is_all_there_is(direction: str, precision: str) -> None:
    for problem in PROBLEMS.values():
        request = Request(problem, direction, H100, NAMED, precision)
        found = candidates(request).plans
        assert {(p.kernel, p.precision) for p in found} == {("cuBLASLt", precision)}
        assert plan(request) in found
        assert [p.workspace for p in found] == [0]  # short sums


@pytest.mark.parametrize("short", [0, 1, 4, 64])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sums_are_cut_where_they_are_long_in_whole_steps_of_blocks(direction, short) -> None:
    """The library lost the last 4 of 16,900 where it cut them: of others it has no workspace, by
    whatever name."""
    summed = 256 - short
    sizes = {"forward": (8, 64, summed), "backward_data": (8, summed, 64)}
    pixels, m, c = sizes.get(direction, (summed, 8, 64))
    request = Request(Problem.of((1, pixels, c), (m, 1, c)), direction, H100, NAMED, "fp16")
    assert {p.workspace for p in candidates(request).plans} == ({0} if short else {0, USUAL})
    named = plan(replace(request, algorithm=None, config=Config(512)))
    assert isinstance(named, CublasltPlan)
    assert named.workspace == (0 if short else 512)
    x, y = (View(0, (pixels * k, 0, 0, k, 1)) for k in (c, m))
    w = View(0, (c, 0, 0, 0, 1))
    a, b, out = {"forward": (x, w, y), "backward_data": (y, w, x)}.get(direction, (x, y, w))
    found = packed(parameters(named, a, b, out, 1 << 20))
    assert (found["workspace"], found["size"]) == ((0, 0) if short else (1 << 20, 512))


def test_the_public_door_shows_it() -> None:
    how = {"precision": "fp16", "device": "h200", "direction": "backward_filter"}
    shapes = (32, 28, 28, 256), (64, 1, 1, 256)
    found = winolab.plan(*shapes, algorithm="direct;variant=cublaslt", **how)  # pyright: ignore
    assert found.to_dict()["plan"]["kernel"] == "cuBLASLt"
    assert "256 × 64 results, sums of 25088" in str(found)
    unnamed = winolab.plan(*shapes, **how)  # pyright: ignore[reportArgumentType]
    assert unnamed.to_dict()["plan"]["kernel"] == "cuBLASLt"


def test_names_are_read_and_refused() -> None:
    assert parse_algorithm("direct;variant=cublaslt") == direct(variant="cublaslt") == NAMED
    assert str(NAMED) == "direct;variant=cublaslt"
    assert direct() != NAMED
    with pytest.raises(ValueError, match="unknown variant 'cudnn'; expected 'cublaslt' or none"):
        parse_algorithm("direct;variant=cudnn")


def test_on_the_reference_it_is_direct() -> None:
    """With whatever filter."""
    x, w = np.ones((1, 5, 6, 4), np.float16), np.ones((3, 3, 3, 4), np.float16)
    both = [winolab.conv_forward(x, w, padding=1, algorithm=name) for name in (NAMED, "direct")]
    assert np.array_equal(*both)


@pytest.mark.parametrize(
    ("x", "w", "how"),
    [
        ((2, 8, 8, 16), (8, 3, 3, 16), {"padding": 1}),
        ((2, 8, 8, 16), (8, 1, 1, 16), {"stride": 2}),
        ((2, 8, 8, 16), (8, 1, 1, 16), {"padding": 1}),
        ((2, 8, 8, 16), (8, 1, 1, 16), {"padding": ((0, 1), (0, 0))}),
        ((2, 8, 8, 16), (8, 1, 1, 8), {"groups": 2}),
    ],
)
def test_what_is_no_product_is_refused_in_a_line(x, w, how) -> None:
    problem = Problem.of(x, w, **how)
    for direction in DIRECTIONS:
        with pytest.raises(ValueError, match="filters of one tap with stride 1") as refused:
            plan(Request(problem, direction, H100, NAMED, "fp16"))
        assert "\n" not in str(refused.value)
        assert not fits(Request(problem, direction, H100, None, "fp16"))


def test_other_algorithms_and_precisions_ask_for_none() -> None:
    for named, directions in (("gamma:8:6:3", DIRECTIONS), ("omega:8:3:6", DIRECTIONS[2:])):
        for direction in directions:
            choice = candidates(Request(LAYER, direction, H100, parse_algorithm(named), "fp16"))
            assert not any(p.kernel == "cuBLASLt" for p in choice.plans)
            assert not any("cuBLASLt multiplies" in reason for reason in choice.reasons)
    with pytest.raises(ValueError, match="no CUDA kernel computes forward in fp32_split"):
        plan(Request(LAYER, "forward", H100, NAMED, "fp32_split"))


def test_workspaces_are_within_the_limit_and_within_the_usual_one() -> None:
    assert USUAL <= USUAL_LEAST
    for direction in DIRECTIONS:
        assert usual_limit(Request(PROBLEMS["map"], direction, H100, None, "fp16")) >= USUAL
        for limit in (0, 100, 1 << 20, 1 << 30):
            found = offered(LAYER, direction, "fp16", workspace_limit=limit)
            assert {p.workspace for p in found} == {0, min(limit, USUAL)}


def test_it_is_considered_where_the_library_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for direction in DIRECTIONS:
        for precision in PRECISIONS:
            found = fits(Request(LAYER, direction, H100, None, precision))
            unforeseen = direction == "backward_filter" and precision == "fp32"
            assert {p.workspace for p in found} == ({0} if unforeseen else {0, USUAL})
        named = Request(LAYER, direction, H100, direct(), "fp16")
        assert fits(named)
    assert isinstance(plan(Request(LAYER, "backward_filter", H100, None, "fp16")), CublasltPlan)
    monkeypatch.setattr(machine, "has_cublaslt", lambda: False)
    assert fits(named)  # on a machine without a driver
    monkeypatch.setattr(machine, "driver_cuda", lambda: (13, 0))
    planner.plan.cache_clear()
    assert not isinstance(plan(Request(LAYER, "forward", H100, None, "fp16")), CublasltPlan)
    assert isinstance(plan(Request(LAYER, "forward", H100, NAMED, "fp16")), CublasltPlan)


def test_factors_of_times_count() -> None:
    p = offered(LAYER, "backward_filter", "fp16", workspace_limit=0)[0]
    kept = cost.seconds(p)
    assert p.predicted == kept
    for name in ("start", "products", "arrays"):
        slower = replace(MODEL.cublaslt, **{name: 2 * getattr(MODEL.cublaslt, name)})
        assert cost.seconds(p, replace(MODEL, cublaslt=slower)) > kept
    odd = Problem.of((32, 28, 28, 255), (64, 1, 1, 255))
    other = offered(odd, "backward_filter", "fp16", workspace_limit=0)[0]
    assert cost.seconds(other) > 3 * kept  # rows of 510 bytes


def test_a_workspace_is_predicted_to_pay_where_one_block_sums_all() -> None:
    none, most = (
        replace(offered(LAYER, "backward_filter", "fp16")[0], config=Config(size))
        for size in (0, USUAL)
    )
    assert cost.seconds(none) > 1.5 * cost.seconds(most)
    forward = offered(LAYER, "forward", "fp16")
    assert {p.predicted for p in forward} == {forward[0].predicted}
    assert plan(Request(LAYER, "forward", H100, NAMED, "fp16")).workspace == 0


def test_sums_are_cut_where_blocks_are_few_and_parts_have_room() -> None:
    narrow = Problem.of(LAYER.x_shape, (64, 1, 1, 256))
    p = replace(offered(narrow, "backward_filter", "fp16")[0], config=Config(USUAL))
    block, room = (128, 64), 4 * 256 * 64
    assert cost.cut(p, block) == (2, 66)
    parts = [cost.cut(replace(p, config=Config(n * room)), block)[1] for n in (0, 1, 5)]
    assert parts == [1, 1, 5]
    assert cost.cut(replace(p, direction="forward"), (128, 128)) == (196, 1)


def test_its_arithmetic_is_that_of_direct_products() -> None:
    for precision in ("fp16", "bf16"):
        (ours, *_), theirs = (
            offered(LAYER, "forward", precision),
            plan(Request(LAYER, "forward", H100, direct(), precision)),
        )
        assert ours.simulated == theirs.simulated
    assert arithmetic(offered(LAYER, "forward", "fp32")[0].simulated) == arithmetic("fp32")
