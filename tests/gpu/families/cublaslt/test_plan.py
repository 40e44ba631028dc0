"""What is planned for cuBLASLt, by name and, where the device model has its times, by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import winolab
from tests.gpu.families.cublaslt.cases import DIRECTIONS, PRECISIONS, PROBLEMS, offered
from winolab.algorithm import Problem, direct, parse_algorithm
from winolab.device import H100, datasheet
from winolab.gpu.families.cublaslt import cost
from winolab.gpu.families.cublaslt import plan as cublaslt
from winolab.gpu.families.cublaslt.config import USUAL, Config
from winolab.gpu.families.cublaslt.plan import NAMED, CublasltPlan
from winolab.gpu.families.direct.plan import DirectPlan
from winolab.gpu.planner import planner
from winolab.gpu.planner.device_model import MODEL, Cublaslt, model_of, text
from winolab.gpu.planner.planner import USUAL_LEAST, candidates, plan, usual_limit
from winolab.gpu.planner.request import Request
from winolab.ref.arithmetic.simulated import arithmetic

BARE = replace(MODEL, cublaslt=None)
LAYER = Problem.of((32, 28, 28, 256), (64, 1, 1, 256))
FITTED = Cublaslt(start=1e-9, products=1.0, work_tile=1e-9, arrays=1.0)
SECTION = "\n[cublaslt]\n" + "\n".join(
    f'{name} = {{ value = {value}, unit = "s", meaning = "" }}'
    for name, value in vars(FITTED).items()
)


def fits(request: Request) -> list[CublasltPlan]:
    return [p for p in candidates(request).plans if isinstance(p, CublasltPlan)]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device model without the family's times, whatever the file has."""
    monkeypatch.setattr(cublaslt, "MODEL", BARE)
    planner.plan.cache_clear()
    yield
    planner.plan.cache_clear()


@pytest.fixture
def fitted(bare: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has them, on a machine with the library."""
    monkeypatch.setattr(cublaslt, "MODEL", replace(MODEL, cublaslt=FITTED))
    monkeypatch.setattr(cublaslt, "has_cublaslt", lambda: True)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_by_name_it_is_all_there_is(direction: str, precision: str) -> None:
    for problem in PROBLEMS.values():
        request = Request(problem, direction, H100, NAMED, precision)
        found = candidates(request).plans
        assert {(p.kernel, p.precision) for p in found} == {("cuBLASLt", precision)}
        assert plan(request) in found
        assert sorted(p.workspace for p in found) == [0, USUAL]
        by_config = plan(replace(request, algorithm=None, config=Config(512)))
        assert (by_config.kernel, by_config.workspace) == ("cuBLASLt", 512)


def test_the_public_door_shows_it() -> None:
    how = {"precision": "fp16", "device": "h200", "direction": "backward_filter"}
    shapes = (32, 28, 28, 256), (64, 1, 1, 256)
    found = winolab.plan(*shapes, algorithm="direct;variant=cublaslt", **how)  # pyright: ignore
    assert found.to_dict()["plan"]["kernel"] == "cuBLASLt"
    assert "256 × 64 results, sums of 25088" in str(found)
    unnamed = winolab.plan(*shapes, **how)  # pyright: ignore[reportArgumentType]
    assert unnamed.to_dict()["plan"]["kernel"] != "cuBLASLt"
    assert "left out: cuBLASLt is not measured yet" in str(unnamed)


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
    for named in ("direct", "gamma:8:6:3", "omega:8:3:6"):
        for direction in DIRECTIONS:
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


def test_without_times_of_its_own_nobody_picks_it() -> None:
    for direction in DIRECTIONS:
        for precision in PRECISIONS:
            assert not fits(Request(LAYER, direction, H100, None, precision))


def test_a_section_of_the_device_model_is_what_it_waits_for() -> None:
    without = re.sub(r"(?ms)^\[cublaslt\].*?(?=^\[|\Z)", "", text())
    assert model_of(without) == BARE
    assert model_of(without + SECTION) == replace(BARE, cublaslt=FITTED)
    with pytest.raises(ValueError, match=r"\[cublaslt\] .* lacks start"):
        model_of(without + SECTION.replace("start", "starts"))


def test_with_times_it_is_considered_in_16_bits_where_the_library_is(
    fitted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for direction in DIRECTIONS:
        for precision in ("fp16", "bf16"):
            request = Request(LAYER, direction, H100, None, precision)
            assert fits(request)
            assert isinstance(plan(request), CublasltPlan)  # by times that nobody has
        assert not fits(Request(LAYER, direction, H100, None, "fp32"))
        named = Request(LAYER, direction, H100, direct(), "fp16")
        assert fits(named)
    monkeypatch.setattr(cublaslt, "has_cublaslt", lambda: False)
    planner.plan.cache_clear()
    assert isinstance(plan(Request(LAYER, "forward", H100, None, "fp16")), DirectPlan)
    assert isinstance(plan(Request(LAYER, "forward", H100, NAMED, "fp16")), CublasltPlan)


def test_factors_of_times_count() -> None:
    h200, p = datasheet("h200"), offered(LAYER, "backward_filter", "fp16")[0]
    least = cost.seconds(p, BARE)
    assert p.predicted == least
    for name in ("start", "products", "work_tile", "arrays"):
        slower = replace(FITTED, **{name: 2 * getattr(FITTED, name) + 1e-6})
        model = replace(MODEL, cublaslt=slower)
        assert cost.seconds(p, model) > cost.seconds(p, replace(MODEL, cublaslt=FITTED)) > least
    assert cost.seconds(replace(p, device=h200), BARE) < least
    assert cost.seconds(replace(p, config=Config(0)), BARE) > 2 * least  # one block sums all


def test_sums_are_cut_where_blocks_are_few_and_parts_have_room() -> None:
    p = offered(LAYER, "backward_filter", "fp16")[0]
    assert cost.cut(p) == (128 * 64, 2, 66)
    room = 4 * 256 * 64
    assert [cost.cut(replace(p, config=Config(n * room)))[2] for n in (0, 1, 5)] == [1, 1, 5]
    assert cost.cut(replace(p, direction="forward"))[1:] == (196, 1)


def test_its_arithmetic_is_that_of_direct_products() -> None:
    for precision in ("fp16", "bf16"):
        (ours, *_), theirs = (
            offered(LAYER, "forward", precision),
            plan(Request(LAYER, "forward", H100, direct(), precision)),
        )
        assert ours.simulated == theirs.simulated
    assert arithmetic(offered(LAYER, "forward", "fp32")[0].simulated) == arithmetic("fp32")
