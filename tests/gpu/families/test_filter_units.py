"""Kernels that transform filters in translation units of their own, which plans share."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.device import H100, datasheet
from winolab.gpu.codegen.translation_unit import TranslationUnit
from winolab.gpu.planner.planner import plan as choose
from winolab.gpu.planner.request import Request

ALGORITHMS = {"Γ": "gamma:8:6:3", "nested": "winograd:4x4:3x3", "staged": "winograd:6x6:5x5"}


def _plan(name: str, precision: str = "fp32_split", size: int = 28, device=H100) -> Any:
    algorithm = parse_algorithm(ALGORITHMS[name])
    r = algorithm.tiles[-1].r
    problem = Problem.of((8, size, size, 64), (64, r, r, 64), padding=1)
    return choose(Request(problem, "forward", device, algorithm, precision)).primary


def _units(plan: Any) -> tuple[TranslationUnit, TranslationUnit]:
    products, filters = plan.translation_units()
    return products, filters


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_kernel_is_in_one_of_two_units(name: str, compiled) -> None:
    """Those that meet the filter alone, with the scales, and those that meet x and y."""
    plan = _plan(name)
    products, filters = _units(plan)
    found = [compiled(unit.source()) for unit in (products, filters)]
    assert [unit.shared().keys() for unit in (products, filters)] == [f.keys() for f in found]
    assert found[0] | found[1] == compiled(plan.source())
    assert len(found[0]) + len(found[1]) == len(plan.shared())
    own = re.compile(r"winolab_(scale|scan|nested_rows|nested_losses|\w+_filter\w*)")
    assert all(own.fullmatch(kernel) for kernel in found[1])
    assert not any(own.fullmatch(kernel) for kernel in found[0])


def test_on_compute_capability_8_too(compiled) -> None:
    plan = _plan("Γ", device=datasheet("a100"))
    products, filters = _units(plan)
    made = {**compiled(products.source(), "sm_80"), **compiled(filters.source(), "sm_80")}
    assert made == compiled(plan.source(), "sm_80")


@pytest.mark.parametrize(
    ("name", "change"),
    [("Γ", {"run": 1, "images": 1}), ("nested", {"stages": 3}), ("staged", {"stages": 1})],
)
def test_plans_that_multiply_otherwise_share_a_filter_s(name: str, change) -> None:
    plan = _plan(name)
    other = replace(plan, config=replace(plan.config, **change))
    assert other.config != plan.config
    (products, filters), (others, same) = _units(plan), _units(other)
    assert products.source() != others.source()
    assert filters.source() == same.source()
    assert filters.title == same.title == f"{plan.kernel} fp32_split, filter"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_they_name_every_constant_that_they_have(name: str) -> None:
    _, filters = _units(_plan(name))
    code = re.sub(r"//.*", "", filters.source())
    for constant in re.findall(r"^constexpr (?:int|long long) ([A-Z_\d]+) = -?\d+;$", code, re.M):
        assert len(re.findall(rf"\b{constant}\b", code)) > 1, constant


def test_filters_that_lie_otherwise_are_others() -> None:
    plan = _plan("Γ")
    other = replace(plan, config=replace(plan.config, share=1))
    assert _units(plan)[1].source() != _units(other)[1].source()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_of_16_bits_there_is_one(name: str) -> None:
    plan = _plan(name, "fp16")
    assert plan.translation_units() == (plan,)
